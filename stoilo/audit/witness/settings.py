"""A project's own witnesses: the file that its operator writes, and what comes of it.

The file is a tlog-policy without its `log` line, for that is the project's own. Keys,
groups and quorum go into the release, signed offline; the addresses stay the server's,
so that a witness can move without a ceremony.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from urllib.parse import urlsplit

from stoilo.audit.format.note import parse_vkey
from stoilo.audit.format.policy import (
    MAX_POLICY_BYTES,
    LogPolicy,
    has_quorum,
    parse_policy,
)
from stoilo.core.errors import TrustError, UsageError

NO_WITNESSES = LogPolicy(())
"""The default: nobody cosigns, and the docs say what does not hold then."""


def read_witnesses(path: str) -> LogPolicy:
    """Return the policy in file `path`, its logs left out; empty: `NO_WITNESSES`.

    Raises:
        UsageError: ``STO-L116`` when it cannot be read or is malformed, ``STO-L117``
            when the quorum can never be reached.
    """
    if not path:
        return NO_WITNESSES
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_POLICY_BYTES + 1)
    except OSError as error:
        raise UsageError(
            "STO-L116", f"the log policy cannot be read: {error.strerror}"
        ) from error
    try:
        policy = parse_policy(text)
    except TrustError as error:
        raise UsageError("STO-L116", f"the log policy: {error.message}") from error
    if policy.logs:
        raise UsageError(
            "STO-L116",
            "the log policy names a log",
            hint="leave the log line out: the project's own is added",
        )
    for one in policy.witnesses:
        if one.url and not _is_reachable(one.url):
            raise UsageError("STO-L116", f"the log policy: no such URL: {one.url!r}")
    check_witnesses(policy)
    return policy


def _is_reachable(url: str) -> bool:
    """Whether a URL names a host and a port that there can be."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def check_witnesses(policy: LogPolicy) -> None:
    """Raise ``STO-L117`` when the witnesses that have an address are no quorum."""
    asked = {one.name for one in policy.witnesses if one.url}
    if not has_quorum(policy, asked):
        raise UsageError(
            "STO-L117",
            f"the quorum {policy.quorum!r} needs witnesses that have no URL",
            hint="witness NAME VKEY URL",
        )


def with_log(policy: LogPolicy, vkey: str) -> LogPolicy:
    """Return `policy` with the project's own log; raises ``STO-L116``.

    A witness must not be the log itself under another name.
    """
    key = parse_vkey(vkey)
    if key.public in {one.key.public for one in policy.witnesses}:
        raise UsageError("STO-L116", "a witness has the log's own key")
    return dataclasses.replace(policy, logs=(key,))


def without_urls(policy: LogPolicy) -> LogPolicy:
    """Return what readers verify by: keys, groups and quorum."""
    witnesses = tuple(dataclasses.replace(one, url="") for one in policy.witnesses)
    return dataclasses.replace(policy, witnesses=witnesses)
