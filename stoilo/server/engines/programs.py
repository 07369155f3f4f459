"""The programs of stock clients, checked as a client will before anything is stored.

A ceremony's mistake stops at the server instead of making every host's tasks fail. No key
to sign with is ever here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stoilo.core.boinc.codesign import (
    BoincPublicKey,
    check_boinc_signature,
    key_change_md5,
    parse_boinc_public,
)
from stoilo.core.errors import TrustError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FIRST_VERSION: Final = 100  # BOINC shows it as 1.00
# Without one, or below 6.0, a client shares no memory-mapped file with the launcher
API_VERSION: Final = "7.20.5"
VERIFIER_OPEN_NAME: Final = "stoilo-verifier.tar"
_PLATFORM: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def launcher_name(digest: str) -> str:
    """Return a launcher's name, which is of its bytes: it never changes its meaning."""
    return f"stoilo_launcher_{digest[:16]}"


def verifier_name(digest: str) -> str:
    """Return a verifier's name in the same way."""
    return f"stoilo_verifier_{digest[:16]}.tar"


@dataclass(frozen=True, slots=True)
class SignedFile:
    """One file of an app version, as the release has it."""

    digest: str  # plain SHA-256 of the content
    # the bytes themselves, or a file that does not change during the call
    source: Path | bytes
    signature: str  # BOINC's over it, the text of its ``.sig`` file


@dataclass(frozen=True, slots=True)
class AppProgram:
    """What a stock BOINC client runs on one platform, the same for every app."""

    platform: str  # BOINC's name of it, for example ``x86_64-pc-linux-gnu``
    launcher: SignedFile  # the program that the client starts
    verifier: SignedFile  # the archive that the launcher unpacks and checks by itself

    @property
    def files(self) -> tuple[tuple[str, SignedFile], ...]:
        """Return its two files by their names, the one that BOINC runs first."""
        return (
            (launcher_name(self.launcher.digest), self.launcher),
            (verifier_name(self.verifier.digest), self.verifier),
        )


@dataclass(frozen=True, slots=True)
class FormerKey:
    """A code-sign key that clients may still hold."""

    key: str  # its text
    signature: str  # by it, over the text of the key in force


@dataclass(frozen=True, slots=True)
class CodeSignKey:
    """The public key that clients check app versions with, in BOINC's text form."""

    text: str = ""  # empty where nothing is signed; then there can be no programs
    former: tuple[FormerKey, ...] = ()  # keys that it has taken over from


def check_programs(
    programs: Sequence[AppProgram],  # one for each platform
    md5s: Mapping[str, str],  # digest of a file → its MD5
    key: CodeSignKey,  # to check with
) -> None:
    """Check programs as a client would.

    Raises:
        UsageError: ``STO-E001``.
        TrustError: ``STO-K076`` for a malformed key.
    """
    platforms = [program.platform for program in programs]
    if len(set(platforms)) < len(platforms):
        raise UsageError("STO-E001", "two programs for one platform")
    if not all(map(_PLATFORM.fullmatch, platforms)):
        raise UsageError("STO-E001", "a platform's name is not usable")
    if not programs and not key.text:
        return
    public = parse_boinc_public(key.text)
    for program in programs:
        for _, file in program.files:
            what = f"{program.platform}'s program"
            _check_signature(md5s[file.digest], file.signature, public, what)
    for former in key.former:
        text, old = key_change_md5(public), parse_boinc_public(former.key)
        _check_signature(text, former.signature, old, "the change of the key")


def _check_signature(
    md5: str, signature: str, public: BoincPublicKey, what: str
) -> None:
    """Check one signature; raises ``STO-K076``."""
    try:
        check_boinc_signature(md5, signature, public)
    except TrustError as error:
        raise TrustError("STO-K076", f"{what}: {error.message}") from error
