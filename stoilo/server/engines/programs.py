"""Checking the programs of stock clients as a client will, before anything is stored.

A ceremony's mistake stops at the server instead of making every host's tasks fail. No key
to sign with is ever here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import TrustError, UsageError
from stoilo.signer.boinc_keys import (
    BoincPublicKey,
    check_boinc_signature,
    md5_hex,
    parse_boinc_public,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stoilo.server.engines.interface import AppProgram, CodeSignKey

__all__ = ["check_programs"]

_PLATFORM: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def check_programs(
    programs: Sequence[AppProgram], md5s: Mapping[str, str], key: CodeSignKey
) -> None:
    """Check programs as a client would.

    Args:
        programs: one for each platform.
        md5s: digest of a file → its MD5.
        key: to check with.

    Raises:
        UsageError: ``STO-E051``.
        TrustError: ``STO-E050``; ``STO-K075`` for a malformed key.
    """
    platforms = [program.platform for program in programs]
    if len(set(platforms)) < len(platforms):
        raise UsageError("STO-E051", "two programs for one platform")
    if not all(map(_PLATFORM.fullmatch, platforms)):
        raise UsageError("STO-E051", "a platform's name is not usable")
    if not programs and not key.text:
        return
    public = parse_boinc_public(key.text)
    for program in programs:
        for file in (program.launcher, program.verifier):
            what = f"{program.platform}'s program"
            _check_signature(md5s[file.digest], file.signature, public, what)
    for former in key.former:
        text = md5_hex(key.text.strip().encode())
        old = parse_boinc_public(former.key)
        _check_signature(text, former.signature, old, "the change of the key")


def _check_signature(
    md5: str, signature: str, public: BoincPublicKey, what: str
) -> None:
    """Check one signature; raises ``STO-E050``."""
    try:
        check_boinc_signature(md5, signature, public)
    except TrustError as error:
        raise TrustError("STO-E050", f"{what}: {error.message}") from error
