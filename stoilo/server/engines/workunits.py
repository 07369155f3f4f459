"""What a workunit is asked with, the same for every engine, and which of it makes sense."""

from __future__ import annotations

import hashlib
import io
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from stoilo.core.digests import check_digest
from stoilo.core.errors import StoiloError, TrustError, UsageError
from stoilo.core.types import check_redundancy
from stoilo.policies.levels import level_names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from stoilo.core.types import Redundancy


APP_CHARS: Final = 32
CHUNK: Final = 1024 * 1024
_WORKUNIT_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_OPEN_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,59}")


@dataclass(frozen=True, slots=True)
class WorkunitFile:
    """One immutable input file."""

    open_name: str  # the name under which the executor asks for it (`executor.workdir`)
    digest: str  # plain SHA-256 of the content; files of equal digest are stored once
    # the bytes themselves, or a file that does not change during the call (the engine
    # links or copies it, the caller may delete its own afterwards)
    source: Path | bytes
    # volunteers keep it in their cache after the workunit (shared blobs)
    sticky: bool = False
    # what it becomes on a volunteer's disk, beside itself; 0: nothing
    unpacked_bytes: int = 0


def measure(
    source: Path | bytes, digest: str = "", *, with_md5: bool = True
) -> tuple[int, str, str]:
    """Return size, SHA-256 and MD5 of a file, read once, in pieces.

    Without `with_md5` the last says nothing: it costs more than twice the other.

    Raises:
        TrustError: ``STO-E002`` it has another digest than the one given.
        OSError: it cannot be read.
    """
    # MD5 is BOINC's check of a transfer; nothing is trusted for it.
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    size = 0
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        while chunk := file.read(CHUNK):
            sha256.update(chunk)
            size += len(chunk)
            if with_md5:
                md5.update(chunk)
    found = sha256.hexdigest()
    if digest and found != digest:
        raise TrustError("STO-E002", "an input file does not have its digest")
    return size, found, md5.hexdigest()


class Homogeneity(StrEnum):
    """How alike the hosts of one workunit's results must be (BOINC's classes)."""

    NONE = ""
    COARSE = "coarse"  # family of operating systems, and of processors' makers
    FINE = "fine"  # family of operating systems, and of processors


@dataclass(frozen=True, slots=True)
class Replication:
    """How the operator lets a workunit's results be spread."""

    # its results go to hosts of one class only, that of the first
    homogeneous: Homogeneity = Homogeneity.NONE
    # one result is enough where a host with a record of valid results, not checked this
    # time, has computed it; the quorum of the redundancy holds as soon as a result goes
    # to any other host
    adaptive: bool = False


@dataclass(frozen=True, slots=True)
class WorkunitSpec:
    """One workunit: the results of one admitted attempt."""

    name: str  # unique, 1..100 of ``[A-Za-z0-9_.-]``; creation is idempotent by it
    app: str  # BOINC app, which is the level's name
    # inputs, all downloaded by every result; open names are distinct
    files: tuple[WorkunitFile, ...]
    redundancy: Redundancy  # results, quorum, limits and delay bound (s)
    not_after: int  # end of the admission, s; no result gets a deadline beyond it
    result_max_bytes: int  # largest result file accepted
    fpops_est: float = 1e9  # expected work of one result, FLOP
    fpops_bound: float = 1e14  # work after which a client gives up, FLOP
    reviewed: bool = False  # a reviewer has signed it
    public_source: bool = False  # its source may be published
    topics: tuple[str, ...] = ()  # what it is about; hosts may ask for some only
    replication: Replication = Replication()  # how its results are spread
    memory_bound: int = 0  # what a result needs of a host's memory, bytes; 0: not said
    disk_bound: int = 0  # what it needs of the disk, bytes; 0: not said
    # who shares the hosts with others, and his weight; a stock engine goes by age alone
    share: str = ""
    weight: int = 1


def check_spec(spec: WorkunitSpec) -> None:
    """Raise ``STO-E001`` unless a workunit can be made from `spec`."""
    names = [file.open_name for file in spec.files]
    checks = (
        (_WORKUNIT_NAME.fullmatch(spec.name), "the name is not usable"),
        (".." not in spec.name, "the name is not usable"),
        (
            _OPEN_NAME.fullmatch(spec.app) and len(spec.app) <= APP_CHARS,
            "no usable app",
        ),
        (all(map(_OPEN_NAME.fullmatch, names)), "an open name is not usable"),
        (len(set(names)) == len(names), "two files have one open name"),
        (spec.result_max_bytes > 0, "result_max_bytes must be positive"),
        (0 < spec.fpops_est <= spec.fpops_bound, "fpops_est <= fpops_bound"),
    )
    for holds, problem in checks:
        if not holds:
            raise UsageError("STO-E001", f"workunit {spec.name[:100]!r}: {problem}")
    try:
        check_redundancy(spec.redundancy)
        for file in spec.files:
            check_digest(file.digest)
    except StoiloError as error:
        raise UsageError(
            "STO-E001", f"workunit {spec.name!r}: {error.message}"
        ) from error


@dataclass(frozen=True, slots=True)
class ReplicationRules:
    """The replication of each level; levels not named have the ordinary one."""

    by_level: Mapping[str, Replication] = field(default_factory=dict)

    def of(self, level: str) -> Replication:
        """Return how results of a level's tasks are spread."""
        return self.by_level.get(level, Replication())


def parse_replication(
    homogeneous: str,  # ``level=coarse`` or ``level=fine``, separated by commas
    adaptive: str,  # levels, separated by commas
) -> ReplicationRules:
    """Return the rules that two settings name, or raise ``STO-R090``."""
    alike = dict(_kind_of(part) for part in _parts(homogeneous))
    alone = {_level(part) for part in _parts(adaptive)}
    return ReplicationRules(
        {
            level: Replication(alike.get(level, Homogeneity.NONE), level in alone)
            for level in alike.keys() | alone
        }
    )


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _kind_of(part: str) -> tuple[str, Homogeneity]:
    level, _, kind = part.partition("=")
    if kind not in {"coarse", "fine"}:
        raise UsageError(
            "STO-R090",
            f"setting homogeneous: {part[:40]!r} is not level=coarse or level=fine",
        )
    return _level(level), Homogeneity(kind)


def _level(name: str) -> str:
    if name not in level_names():
        raise UsageError(
            "STO-R090",
            f"there is no level {name[:40]!r}",
            hint=f"the levels are {', '.join(level_names())}",
        )
    return name
