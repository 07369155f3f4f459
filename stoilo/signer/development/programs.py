"""Programs of a development root: published and BOINC-signed on the machine that serves.

A released project's launchers, verifiers and flavors go through a ceremony. A development
root has its offline keys beside the online ones anyway, so here one call does it all, with
a BOINC code-sign key of its own:

    DIR/offline/boinc.key               private, made at the first call
    DIR/boinc/key.pub, launcher/*.sig …  as a ceremony publishes them

Trust: the build directory is the operator's own; its files must be what their records say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoilo.core.errors import TrustError, UsageError
from stoilo.executor.verifier.installation import BUILT_FILE, Built, parse_built
from stoilo.executor.verifier.targets import PartFile, ProjectFile, read_target
from stoilo.executor.verifier.trust import PROJECT_FILE
from stoilo.flavors.archive import read_any_archive
from stoilo.signer.boinc_keys import (
    BoincPrivateKey,
    generate_boinc_key,
    parse_boinc_private,
    render_boinc_private,
    render_boinc_public,
    sign_md5,
)
from stoilo.signer.ceremony.boinc_files import (
    BOINC_FOLDER,
    BOINC_KEY_FILE,
    is_boinc_file,
    signature_name,
)
from stoilo.signer.ceremony.built_parts import read_parts_from
from stoilo.signer.development.root import certify_parts, check_development
from stoilo.signer.key_files import (
    make_private_directory,
    read_private_file,
    write_private_file,
)
from stoilo.signer.repository import newest_file

KEY_FILE: Final = "boinc.key"
_BUILT_PLACE: Final = f"/stoilo/executor/verifier/{BUILT_FILE}"


@dataclass(frozen=True, slots=True)
class PublishedPrograms:
    """What a release hands out from now on.

    Attributes:
        targets: names of the parts' files.
        signed: those that are files of a BOINC app version.
    """

    targets: tuple[str, ...]
    signed: tuple[str, ...]


def project_root(directory: Path) -> bytes:
    """Return the root that a verifier of this development root is built for.

    Raises:
        UsageError: STO-K091 when the directory is a released project's; STO-E090 when
            it has no root.
    """
    check_development(directory)
    try:
        return (directory / "root.json").read_bytes()
    except OSError as error:
        raise _no_root() from error


def project_origin(directory: Path) -> str:
    """Return the origin of this development root; raises as `project_root`."""
    project_root(directory)
    data = newest_file(directory, "targets", PROJECT_FILE)
    if data is None:
        raise _no_root()
    return read_target(data, ProjectFile, PROJECT_FILE).origin


def next_serial(directory: Path, platform: str) -> int:
    """Return a serial that no published launcher or verifier of `platform` has."""
    serials = [
        read_target(data, PartFile, name).serial
        for name in (f"launcher/{platform}.json", f"verifier/{platform}.json")
        if (data := newest_file(directory, "targets", name)) is not None
    ]
    return max(serials, default=0) + 1


def publish_programs(directory: Path, build: Path, now: int) -> PublishedPrograms:
    """Publish every part of `build` in the development root in `directory`.

    The signatures are in place before the targets that they are about.

    Args:
        directory: the release, made by `create_development_root`.
        build: as `stoilo release build` leaves it.
        now: Unix seconds.

    Raises:
        UsageError: as `project_root`; STO-K051 when the build holds no part.
        TrustError: STO-K056 when a file is not what its record says; STO-E091 for a
            launcher without verifier, or one built for another root.
    """
    root = project_root(directory)
    names = tuple(sorted(one.name for one in read_parts_from(build).put))
    signed = tuple(name for name in names if is_boinc_file(name))
    _check_pairs(signed)
    for name in signed:
        if name.startswith("verifier/"):
            _check_root(build / name, root)
    # Before the targets that they are about: a reader never meets a file without.
    _write_signatures(directory, {name: build / name for name in signed})
    certify_parts(directory, {name: build / name for name in names}, now)
    return PublishedPrograms(names, signed)


def ensure_boinc_key(directory: Path) -> BoincPrivateKey:
    """Return the development root's BOINC code-sign key, made when there is none.

    Raises:
        UsageError: STO-K091 when the directory is a released project's.
        TrustError: STO-K003, STO-K029, STO-K075 when the key's file cannot be used.
    """
    check_development(directory)
    path = directory / "offline" / KEY_FILE
    if not path.exists():
        write_private_file(path, render_boinc_private(generate_boinc_key()).encode())
    return parse_boinc_private(read_private_file(path).decode("ascii", "replace"))


def _check_pairs(signed: tuple[str, ...]) -> None:
    """Refuse a launcher without the verifier that it starts, and the reverse."""
    launchers = {name.partition("/")[2] for name in signed if "launcher/" in name}
    verifiers = {
        name.partition("/")[2].removesuffix(".tar")
        for name in signed
        if "verifier/" in name
    }
    # A launcher holds the digest of one verifier: alone it stops every host.
    if alone := launchers ^ verifiers:
        raise TrustError(
            "STO-E091",
            f"launcher and verifier belong together: {', '.join(sorted(alone))}",
        )


def _check_root(archive: Path, root: bytes) -> None:
    """Refuse a verifier that was built for another root."""
    # It would refuse every admission of this project.
    if _read_built(archive).root_bytes() != root:
        raise TrustError(
            "STO-E091", f"{archive.name} holds another root than this project's"
        )


def _read_built(archive: Path) -> Built:
    """Return what the verifier in `archive` was built with; raises ``STO-F035``."""
    with archive.open("rb") as file:
        for member in read_any_archive(file):
            if member.file.path.endswith(_BUILT_PLACE):
                return parse_built(b"".join(member.chunks))
    raise TrustError("STO-E091", f"{archive.name} does not say its root")


def _no_root() -> UsageError:
    """Return ``STO-E090``."""
    return UsageError(
        "STO-E090",
        "there is no development root here yet",
        hint="start the server once: stoilo up --data DIR; or, for a stock project, add"
        " --new",
    )


def _write_signatures(directory: Path, files: Mapping[str, Path]) -> None:
    """Write the BOINC key and its signatures on `files`, by target name."""
    key = ensure_boinc_key(directory)
    texts = {BOINC_KEY_FILE: render_boinc_public(key.public)}
    texts |= {
        signature_name(name): sign_md5(_md5(file), key) for name, file in files.items()
    }
    for name, text in texts.items():
        place = directory / BOINC_FOLDER / name
        make_private_directory(directory / BOINC_FOLDER)
        make_private_directory(place.parent)
        write_private_file(place, text.encode("ascii"))


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.md5(usedforsecurity=False)
        ).hexdigest()
