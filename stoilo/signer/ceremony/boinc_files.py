"""BOINC's signatures, made in the ceremony: the server never holds the key for them.

    boinc/key.pub                    the code-sign key in BOINC's text form
    boinc/launcher/<platform>.sig    over the launcher of that platform
    boinc/verifier/<platform>.tar.sig

Only these two are files of a BOINC app version. BOINC signs an MD5, for which twins can be
prepared by whoever prepares the file, so that what is signed here has been named by its
SHA-256 in the proposal and attested by the builders before (`stoilo.signer.attestations`); this
module signs exactly the bytes with that digest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from stoilo.core.boinc.codesign import (
    BoincPublicKey,
    check_boinc_signature,
    parse_boinc_public,
    render_boinc_public,
)
from stoilo.core.errors import TrustError
from stoilo.signer.boinc_keys import BoincPrivateKey, sign_md5
from stoilo.signer.ceremony.folder import Ceremony
from stoilo.signer.ceremony.proposal import NewTarget

BOINC_FOLDER: Final = "boinc"
BOINC_KEY_FILE: Final = "key.pub"
MAX_FILE_BYTES: Final = 4096
_SIGNED = re.compile(r"launcher/[a-z0-9_]+-[a-z]+|verifier/[a-z0-9_]+-[a-z]+\.tar")
_KEY_CHANGE = re.compile(r"boinc/(?:old_key|signature_stripped)_[0-9]{1,2}")
_CHUNK = 1024 * 1024


def is_boinc_file(target: str) -> bool:
    """Whether target `target` is a file of a BOINC app version."""
    return _SIGNED.fullmatch(target) is not None


def is_key_change(name: str) -> bool:
    """Whether a file below the release's directory is of `boinc-change`: it stays."""
    return _KEY_CHANGE.fullmatch(name) is not None


def signature_name(target: str) -> str:
    """Return the name of a target's signature below ``boinc/``."""
    return f"{target}.sig"


def missing_boinc_files(ceremony: Ceremony) -> tuple[str, ...]:
    """Return the proposed targets that BOINC's key still has to sign, by name."""
    signed = {name for name, _ in ceremony.boinc}
    return tuple(
        one.name
        for one in ceremony.proposal.targets
        if is_boinc_file(one.name) and signature_name(one.name) not in signed
    )


def sign_boinc_files(ceremony: Ceremony, key: BoincPrivateKey) -> Ceremony:
    """Return `ceremony` with BOINC's signatures on its launchers and verifiers.

    Call it after the review: builders' attestations are checked there, not here.

    Raises ``STO-K076`` when the folder has another key's signatures or a file is no
    longer what is proposed.
    """
    public = render_boinc_public(key.public).encode()
    files = dict(ceremony.boinc)
    # Hosts take files of one key only.
    if files.get(BOINC_KEY_FILE, public) != public:
        raise TrustError(
            "STO-K076",
            "the folder holds another BOINC key's signatures",
            hint="a new key takes over with `stoilo release sign NEW.pub`",
        )
    files[BOINC_KEY_FILE] = public
    for one in ceremony.proposal.targets:
        if is_boinc_file(one.name):
            text = sign_md5(_md5_of(one), key)
            files[signature_name(one.name)] = text.encode()
    return replace(ceremony, boinc=tuple(sorted(files.items())))


def check_folder_signatures(ceremony: Ceremony) -> None:
    """Check that a folder's BOINC signatures are those of its launchers and verifiers.

    Raises as `check_boinc_files`.
    """
    if ceremony.boinc:
        targets = ceremony.proposal.targets
        md5s = {one.name: _md5_of(one) for one in targets if is_boinc_file(one.name)}
        check_boinc_files(dict(ceremony.boinc), md5s)


def check_boinc_files(
    files: Mapping[str, bytes], md5s: Mapping[str, str]
) -> BoincPublicKey | None:
    """Check that a release has exactly BOINC's signatures that it should have.

    Args:
        files: name below ``boinc/`` → bytes, hostile.
        md5s: target → MD5 (hex) of its verified bytes, for every launcher and verifier.

    Returns:
        The key, None when the release has no BOINC signatures at all.

    Raises:
        TrustError: STO-K076 malformed, STO-K076 missing, too many or not of the file.
    """
    if not files:
        return None
    wanted = {signature_name(target): md5 for target, md5 in md5s.items()}
    if files.keys() != {BOINC_KEY_FILE, *wanted}:
        names = ", ".join(sorted(files.keys() ^ {BOINC_KEY_FILE, *wanted}))
        raise TrustError(
            "STO-K076", f"BOINC's key and signatures are not complete: {names[:300]}"
        )
    key = parse_boinc_public(_text(files[BOINC_KEY_FILE]))
    for name, md5 in wanted.items():
        check_boinc_signature(md5, _text(files[name]), key)
    return key


def _text(data: bytes) -> str:
    """Return the text of a small file; raises ``STO-K076``."""
    if len(data) > MAX_FILE_BYTES or not data.isascii():
        raise TrustError("STO-K076", "not a key or signature in BOINC's form")
    return data.decode("ascii")


def _md5_of(target: NewTarget) -> str:
    """Return the MD5 of a proposed file, whose SHA-256 is computed over the same bytes."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with target.open() as file:
        while piece := file.read(_CHUNK):
            sha256.update(piece)
            md5.update(piece)
    # Twins of one MD5 can be made; of one SHA-256 they cannot.
    if sha256.hexdigest() != target.digest:
        raise TrustError("STO-K076", f"{target.name} is no longer the proposed file")
    return md5.hexdigest()
