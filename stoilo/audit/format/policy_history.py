"""Policies that age: the file form of a policy together with those it replaced.

A proof made under an old policy stays good for ever, unless the old policy is taken out
by hand. What is current stands first and is plain tlog-policy; each older policy follows
a line of our own, newest first:

    retired <since> <until> <max size>

`since` and `until` are POSIX seconds: only cosignatures that state a time between them
count. `max size` (leaves) bounds the checkpoints that the old policy may speak for. A
policy without witnesses has no times to look at, so its size must be bounded; and where
the current policy demands witnesses no older one may do without, or a thief of the log's
key could show a short private fork under it.

The release holds the two apart: target ``log/policy.txt`` is the current policy, which
any tool reads, and ``log/history.txt`` (when there is one) begins with ``retired``.
What this cannot do: a stolen old witness key may state an old time. Then take the old
policy out, or lower its size to what other witnesses saw.
"""

from __future__ import annotations

import re
from dataclasses import replace

from stoilo.audit.format.checkpoint import MAX_SIZE, parse_size
from stoilo.audit.format.policy import (
    MAX_POLICY_BYTES,
    NO_QUORUM,
    LogPolicy,
    RetiredPolicy,
    parse_policy,
    render_policy,
)
from stoilo.core.errors import TrustError

MAX_RETIRED = 32
_HEAD = re.compile(rb"^[ \t]*retired[ \t]+([^\n]*)$", re.MULTILINE)
_NUMBERS = 3


def parse_policies(text: bytes) -> LogPolicy:
    """Parse a policy and the older ones below it, if any.

    Raises:
        TrustError: ``STO-L003`` or ``STO-L004`` for a policy, ``STO-L060`` for a
            ``retired`` line.
    """
    if len(text) > MAX_POLICY_BYTES:
        raise TrustError("STO-L003", "the log policy is too long")
    first = _HEAD.search(text)
    if first is None:
        return parse_policy(text)
    current = parse_policy(text[: first.start()])
    return with_history(current, parse_history(text[first.start() :]))


def with_history(current: LogPolicy, older: tuple[RetiredPolicy, ...]) -> LogPolicy:
    """Return `current` with its predecessors, newest first.

    Raises:
        TrustError: ``STO-L060`` when one would do without witnesses and `current` not.
    """
    if current.quorum != NO_QUORUM and any(_is_bare(one) for one in older):
        raise TrustError(
            "STO-L060", "an older policy without witnesses would undo those of today"
        )
    return replace(current, older=older)


def _is_bare(retired: RetiredPolicy) -> bool:
    return retired.policy.quorum == NO_QUORUM


def parse_history(text: bytes) -> tuple[RetiredPolicy, ...]:
    """Parse ``retired`` sections, newest first; see `parse_policies`."""
    if len(text) > MAX_POLICY_BYTES:
        raise TrustError("STO-L003", "the log policy is too long")
    before, *pieces = _HEAD.split(text)
    heads, bodies = pieces[::2], pieces[1::2]
    if before.strip(b" \t\n") or not heads or len(heads) > MAX_RETIRED:
        raise TrustError(
            "STO-L060", f"a history has 1 to {MAX_RETIRED} sections, each `retired …`"
        )
    sections = zip(heads, bodies, strict=True)
    return tuple(_parse_section(head, body) for head, body in sections)


def _parse_section(head: bytes, body: bytes) -> RetiredPolicy:
    words = head.decode(errors="replace").split()
    if len(words) != _NUMBERS:
        raise TrustError("STO-L060", "`retired` takes since, until and size")
    since, until, size = (parse_size(word, code="STO-L060") for word in words)
    return _checked(RetiredPolicy(parse_policy(body), since, until, size))


def _checked(retired: RetiredPolicy) -> RetiredPolicy:
    if retired.since > retired.until:
        raise TrustError("STO-L060", "a retired policy's window ends before it begins")
    if _is_bare(retired) and retired.max_size == MAX_SIZE:
        raise TrustError(
            "STO-L060", "a retired policy without a quorum must bound the size"
        )
    return retired


def render_policies(policy: LogPolicy) -> bytes:
    """Return the file form of a policy and its older ones."""
    return render_policy(policy) + render_history(policy.older)


def render_history(older: tuple[RetiredPolicy, ...]) -> bytes:
    """Return the ``retired`` sections; empty for none."""
    return b"".join(
        b"retired %d %d %d\n" % (one.since, one.until, one.max_size)
        + render_policy(one.policy)
        for one in older
    )


def succeed(old: LogPolicy, new: LogPolicy, *, now: int, size: int) -> LogPolicy:
    """Return `new`, under which what `old` accepted up to now stays acceptable.

    Where `new` demands witnesses, predecessors that demanded none are forgotten.

    Args:
        old: the policy in force, with its own older ones.
        new: its successor; its older ones are dropped.
        now: POSIX seconds of the change.
        size: leaves of the newest checkpoint accepted under `old`.

    Raises:
        TrustError: ``STO-L060`` when there are too many to remember.
    """
    if new.current == old.current:
        return old
    retired = (RetiredPolicy(old.current, 0, now, size), *old.older)
    if new.quorum != NO_QUORUM:
        retired = tuple(one for one in retired if not _is_bare(one))
    if len(retired) > MAX_RETIRED:
        raise TrustError("STO-L060", f"at most {MAX_RETIRED} policies are remembered")
    return with_history(new, retired)
