"""The parts and epochs that a release names, read from its verified targets.

Trust: the bytes are verified; a record that disagrees with what the metadata says of the
files beside it is refused all the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tuf.api.metadata import TargetFile

from stoilo.core.errors import TrustError
from stoilo.executor.release import (
    EpochsFile,
    GateEpoch,
    PartFile,
    read_epoch,
    read_target,
)

__all__ = ["is_part_file", "part_target", "read_epochs", "read_parts"]

_PART: Final = re.compile(
    r"(launcher|verifier|flavor/[a-z0-9-]{1,32})/([a-z0-9_-]+)\.json"
)
_SUFFIXES: Final = {"launcher": "", "verifier": ".tar"}


def is_part_file(name: str) -> bool:
    """Whether target `name` belongs to a launcher, a verifier or a flavor."""
    return name.startswith(("launcher/", "verifier/", "flavor/"))


def part_target(part: str, platform: str) -> str:
    """Return the target name of part `part`, without suffix (``verifier/x86_64-linux``)."""
    folder = part if part in _SUFFIXES else f"flavor/{part}"
    return f"{folder}/{platform}"


def read_epochs(files: Mapping[str, bytes]) -> tuple[GateEpoch, ...]:
    """Return the certified gate epochs, lowest number first.

    Raises:
        TrustError: STO-K013 malformed, STO-K014 missing, STO-K001, STO-K002 bad keys.
    """
    name = "gate/epochs.json"
    listed = read_target(_read(files, name), EpochsFile, name)
    return tuple(
        read_epoch(_read(files, f"gate/{number}.json"), number)
        for number in sorted(set(listed.epochs))
    )


def read_parts(
    files: Mapping[str, bytes], infos: Mapping[str, TargetFile]
) -> tuple[PartFile, ...]:
    """Return the records of the release's parts, in the order of their names.

    Args:
        files: verified targets that travel, by name.
        infos: size and digest of every target, by name.

    Raises:
        TrustError: STO-K013 malformed; STO-K081 a record and the files it is about
            disagree.
    """
    found = []
    for name in sorted(files):
        match = _PART.fullmatch(name)
        if match is not None:
            part = read_target(files[name], PartFile, name)
            _check_part(part, match[1].removeprefix("flavor/"), match[2], infos)
            found.append(part)
    return tuple(found)


def _check_part(
    part: PartFile, name: str, platform: str, infos: Mapping[str, TargetFile]
) -> None:
    """Compare a record with its place, and with what the metadata says of its files."""
    target = part_target(name, platform)
    archive = target + _SUFFIXES.get(name, ".tar.xz")
    beside = [(archive, part.archive.sha256)]
    if name != "launcher":
        beside += [(f"{target}.tree", part.tree)]
    beside += [(f"{target}.sbom.json", part.sbom)] if part.sbom else []
    agrees = (part.part, part.platform) == (name, platform) and all(
        path in infos and infos[path].hashes.get("sha256") == digest
        for path, digest in beside
    )
    if not agrees or infos[archive].length != part.archive.size:
        raise TrustError(
            "STO-K081", f"{target}.json and the files it is about disagree"
        )


def _read(files: Mapping[str, bytes], name: str) -> bytes:
    """Return file `name`, or raise ``STO-K014``."""
    data = files.get(name)
    if data is None:
        raise TrustError("STO-K014", f"the release does not name {name}")
    return data
