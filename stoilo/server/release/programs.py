"""The programs of stock BOINC clients, read from the release in force.

    DIR/keys/targets/launcher/<sha256>.<platform>        and verifier/<sha256>.<platform>.tar
    DIR/keys/boinc/key.pub                               BOINC's code-sign key
    DIR/keys/boinc/launcher/<platform>.sig               its signatures, made in the ceremony
    DIR/keys/boinc/verifier/<platform>.tar.sig
    DIR/keys[/boinc]/old_key_N, signature_stripped_N     former keys that vouch for this one

A release without BOINC's signatures has no programs: only `stoilo volunteer` gets work then.
Trust: the targets are verified by their digests when they are stored; signatures and keys
are checked by the engine before they are handed out.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.core.boinc.codesign import (
    check_boinc_signature,
    md5_hex,
    parse_boinc_public,
)
from stoilo.core.errors import StoiloError, TrustError
from stoilo.executor.verifier.targets import part_target
from stoilo.executor.volunteer.scheduler_rpc import BOINC_PLATFORMS
from stoilo.server.engines.programs import (
    AppProgram,
    CodeSignKey,
    FormerKey,
    SignedFile,
)
from stoilo.server.release.flavors import is_whole
from stoilo.signer.ceremony.base_release import stored_name
from stoilo.signer.ceremony.boinc_files import (
    BOINC_FOLDER,
    BOINC_KEY_FILE,
    signature_name,
)

if TYPE_CHECKING:
    from stoilo.executor.verifier.targets import PartFile, TrustedRelease
    from stoilo.server.engines.interface import Engine


LOGGER = logging.getLogger(__name__)
MAX_FORMER_KEYS: Final = 16
MAX_TEXT_BYTES: Final = 4096
_SUFFIXES: Final = {"launcher": "", "verifier": ".tar"}


@dataclass(frozen=True, slots=True)
class ReleasedPrograms:
    """What a release has for stock clients."""

    programs: tuple[AppProgram, ...]
    key: CodeSignKey


def offer_programs(engine: Engine, directory: Path, release: TrustedRelease) -> None:
    """Give the engine the programs of the release; a bad one leaves the former in force.

    What is wrong with them is logged: other volunteers must not wait for it.
    """
    found = read_programs(directory, release)
    try:
        engine.set_programs(found.programs, found.key)
    except StoiloError as error:
        LOGGER.warning("the release's programs are not offered to BOINC: %s", error)


def read_programs(directory: Path, release: TrustedRelease) -> ReleasedPrograms:
    """Return the programs of `release` that lie under `directory` with signatures."""
    folder = directory / BOINC_FOLDER
    text = _read_text(folder / BOINC_KEY_FILE)
    if not text:
        return ReleasedPrograms((), CodeSignKey())
    by_platform: dict[str, dict[str, SignedFile]] = {}
    for part in release.parts:
        if part.part in _SUFFIXES and part.archive.sha256 not in release.denied:
            file = _signed_file(directory, part)
            if file is not None:
                by_platform.setdefault(part.platform, {})[part.part] = file
    programs = tuple(
        AppProgram(BOINC_PLATFORMS[platform], files["launcher"], files["verifier"])
        for platform, files in sorted(by_platform.items())
        if files.keys() == _SUFFIXES.keys() and platform in BOINC_PLATFORMS
    )
    return ReleasedPrograms(programs, CodeSignKey(text, _former_keys(directory, text)))


def _signed_file(directory: Path, part: PartFile) -> SignedFile | None:
    """Return a part's file and signature; None when one of them is not here."""
    target = f"{part_target(part.part, part.platform)}{_SUFFIXES[part.part]}"
    path = directory / "targets" / stored_name(target, part.archive.sha256)
    signature = _read_text(directory / BOINC_FOLDER / signature_name(target))
    if not signature:
        LOGGER.warning("%s has no BOINC signature: stock clients get none", target)
        return None
    if not is_whole(path, part.archive.size):
        LOGGER.error("%s is missing or cut short: publish again", target)
        return None
    return SignedFile(part.archive.sha256, path, signature)


def _former_keys(directory: Path, text: str) -> tuple[FormerKey, ...]:
    """Return the keys that have vouched for `text`; others are of changes before."""
    found: dict[str, FormerKey] = {}
    for folder in (directory, directory / BOINC_FOLDER):
        for number in range(MAX_FORMER_KEYS):
            old = _read_text(folder / f"old_key_{number}")
            signature = _read_text(folder / f"signature_stripped_{number}")
            if old and signature and _vouches(old, signature, text):
                found[old] = FormerKey(old, signature)
    return tuple(found.values())


def _vouches(old: str, signature: str, text: str) -> bool:
    md5 = md5_hex(text.strip().encode())
    try:
        check_boinc_signature(md5, signature, parse_boinc_public(old))
    except TrustError:
        return False
    return True


def _read_text(path: Path) -> str:
    """Return a small text file, empty when there is none that is usable."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_TEXT_BYTES + 1)
    except OSError:
        return ""
    return (
        data.decode("ascii") if data.isascii() and len(data) <= MAX_TEXT_BYTES else ""
    )
