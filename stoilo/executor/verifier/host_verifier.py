"""May this copy run here and now? Release, memory and checks put together.

What the host has learnt of a project (newest release, time, floors, revocations) is read,
raised and written under one lock, because several tasks of one BOINC client start at once. It
lies in the host's own state directory, where no project writes (I4), and only ever rises: an
older release or statement, however fresh its signature, and a clock set back revive nothing
that was withdrawn. Nothing here runs a task; `stoilo-verifier --explain` stops after it.
Source: signing-audit §3.6 (g).
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, Protocol

import msgspec

from stoilo.audit.format.proof import parse_proof
from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError, TrustError
from stoilo.core.levels import Level
from stoilo.core.statement import MAX_LIFETIME_S
from stoilo.core.types import RunLimits
from stoilo.executor.verifier import workunit
from stoilo.executor.verifier.admission import verify_work
from stoilo.executor.verifier.installation import disk_trouble, replace_file
from stoilo.executor.verifier.statements import (
    SeenRevocations,
    newest_seen,
    open_revocations,
)
from stoilo.executor.verifier.targets import LOWEST, Floors, TrustedRelease
from stoilo.executor.verifier.trust import (
    Built,
    installed_release,
    load_trust,
    parse_release_pack,
)
from stoilo.executor.verifier.tuf_client import OLDER
from stoilo.executor.verifier.workunit import (
    HostState,
    VerifiedTask,
    Work,
    seen_checkpoint,
)
from stoilo.sandbox.process.exchange import Exchange
from stoilo.sandbox.process.report import JailReport

MEMORY_FILE: Final = "memory.json"
MAX_MEMORY_BYTES: Final = 256 * 1024
MOST: Final = 2**53
"""Highest number that is remembered: a floor above every honest one would last for ever."""


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``memory.json``: what this host has learnt of one project."""

    format: Literal["stoilo-memory/1"]
    # of any cosignature verified here, POSIX s; 0 before the first
    newest_time: Annotated[int, msgspec.Meta(ge=0, le=MOST)] = 0
    floors: Floors = LOWEST
    revocations: SeenRevocations | None = None


class HostMemory:
    """The memory in `path`; the caller keeps other threads and processes out.

    Everything is durable before anything is decided by it.

    Raises:
        InternalError: STO-F040 it is damaged: without it the host could be led back to
            what was withdrawn; STO-X008 the disk refuses.
    """

    def __init__(self, path: Path, compiled: Floors = LOWEST) -> None:
        self._path = path
        self._compiled = compiled
        self._opened: tuple[str, int] | None = None
        self.known = self.recall()

    def recall(self) -> Memory:
        """Read what the disk holds: another verifier of this host may have learnt more."""
        try:
            with self._path.open("rb") as file:
                data = file.read(MAX_MEMORY_BYTES + 1)
            memory = msgspec.json.decode(data, type=Memory)
        except FileNotFoundError:  # the first task of a project on this computer
            memory = Memory("stoilo-memory/1")
        except (OSError, msgspec.MsgspecError, UnicodeError, TrustError) as error:
            raise InternalError(
                "STO-F040",
                "this host's memory of what was withdrawn cannot be read",
                hint=f"look at {self._path.name} in the state directory of the project",
            ) from error
        floors = raise_floors(self._compiled, memory.floors)
        self.known = msgspec.structs.replace(memory, floors=floors)
        return self.known

    def learn_release(self, trust: TrustedRelease) -> None:
        """Raise the floors to what a *verified* release says."""
        said = Floors(
            root=trust.root_version,
            targets=trust.targets_version,
            epoch=trust.min_epoch,
            serials={**trust.floors.serials, "verifier": trust.floors.verifier},
            # Capped, or one stolen key could raise the floor above every honest release
            # for ever.
            revocation=min(trust.revocation_version, MOST),
        )
        self._keep(floors=raise_floors(self.known.floors, said))

    def learn_revocations(self, data: bytes, trust: TrustedRelease) -> None:
        """Take a workunit's statement (hostile) into account.

        Raises:
            TrustError: the codes of `open_revocations` and `newest_seen`.
        """
        opened = (content_digest(data), trust.timestamp_version)
        # A batch of tasks carries one statement: its signatures are not verified again.
        if opened == self._opened and self.known.revocations is not None:
            return
        new = open_revocations(data, trust).statement
        self._keep(revocations=newest_seen(self.known.revocations, new, trust))
        self._opened = opened

    def learn_time(self, time: int | None) -> None:
        """Remember a *verified* cosignature's time, POSIX s; None is ignored."""
        if time is not None and time > self.known.newest_time:
            self._keep(newest_time=time)

    def _keep(self, **learnt: object) -> None:
        memory = msgspec.structs.replace(self.known, **learnt)
        if memory != self.known:
            replace_file(self._path, msgspec.json.encode(memory, order="sorted"))
            self.known = memory


def raise_floors(one: Floors, other: Floors) -> Floors:
    """Return the higher of each floor."""
    return Floors(
        root=max(one.root, other.root),
        targets=max(one.targets, other.targets),
        epoch=max(one.epoch, other.epoch),
        log_size=max(one.log_size, other.log_size),
        serials=_highest(one.serials, other.serials),
        revocation=max(one.revocation, other.revocation),
    )


def _highest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {part: max(one.get(part, 0), other.get(part, 0)) for part in {*one, *other}}


RELEASE_PACK: Final = "release.pack"
"""In the state directory: the newest release that this host has verified."""


@dataclass(frozen=True, slots=True)
class VerifiedWorkunit:
    """A copy that may run."""

    task: VerifiedTask  # what was verified
    trust: TrustedRelease  # the release that it was verified by
    checkpoint: str  # of the log, that it rests on; see `seen_checkpoint`


@dataclass(frozen=True, slots=True)
class _Known:
    """A release that this process has verified: digest of its pack, and what it says."""

    digest: str
    trust: TrustedRelease


def newest_release(state: Path, built: Built, now: int) -> TrustedRelease:
    """Return the newest release that the verifiers of this computer have seen.

    Raises:
        TrustError: STO-F046 when there is none, else the release's codes.
    """
    try:
        pack = (state / RELEASE_PACK).read_bytes()
    except OSError as error:
        raise TrustError(
            "STO-F046",
            "this computer has not seen a release of the project yet",
            hint="let a task run first, or: stoilo volunteer self-check --project URL",
        ) from error
    return load_trust(
        parse_release_pack(pack),
        built.root_bytes(),
        now,
        installed=installed_release(),
        cache=state / "tuf",
        release_build=not built.development,
    )


class JailRunner(Protocol):
    """What runs requests: a warm `Jail`, or what stands for one; thread-safe."""

    def run(
        self,
        request: bytes,
        limits: RunLimits,
        *,
        watch: Callable[[Exchange], object] | None = None,
    ) -> JailReport:
        """Run one request in a fresh fork; blocks.

        `watch` gets what ends the run early, from any thread, before it begins.
        """
        ...


class Runtimes(Protocol):
    """Gives a jail for a task whose verification has ended well."""

    platform: str
    """Of frozen trees; empty where tasks run in what is installed."""

    def flavors(self, trust: TrustedRelease) -> frozenset[str]:
        """Return the ids of the flavors that could run here."""
        ...

    def jail(
        self, level: Level, flavor: str, trust: TrustedRelease, archive: Path | None
    ) -> JailRunner:
        """Return the jail for tasks of `level` that need `flavor`."""
        ...

    def close(self) -> None:
        """End every jail; no other starts."""
        ...


class HostVerifier:
    """Judges copies one after the other; see `VerifiedExecutor` for the arguments.

    Raises:
        InternalError: STO-F040 the host's memory is damaged, STO-X008 its disk refuses.
    """

    def __init__(
        self,
        root: bytes,
        state: Path,
        host: HostState,
        *,
        clock: Callable[[], float],
        runtimes: Runtimes,
        release_build: bool = False,
    ) -> None:
        self._root = root
        self._state = state
        self._clock = clock
        self._runtimes = runtimes
        self._strict = release_build
        self._host = dataclasses.replace(host, platform=runtimes.platform)
        with disk_trouble("the state directory cannot be made"):
            state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._alone():
            self._memory = HostMemory(state / MEMORY_FILE, host.floors)
        self._installed = installed_release()
        self._known: _Known | None = None

    def verify(self, work: Work) -> VerifiedWorkunit:
        """Return the task, if it may run here and now.

        Raises:
            TrustError: the release's codes and those of `verify_work`.
            PolicyRefusal: it is not for this host.
            InternalError: this machine's own trouble.
        """
        work = work.with_documents()
        pack = work.read(workunit.RELEASE)
        # A client starts several tasks at once, and each raises what this host
        # remembers.
        with self._alone():
            newest = self._memory.recall().newest_time
            # A clock that was set back revives nothing.
            now = max(int(self._clock()), newest)
            trust = self._load_trust(pack, now)
            self._memory.learn_release(trust)
            self._memory.learn_revocations(work.read(workunit.REVOCATIONS), trust)
            host = dataclasses.replace(
                self._host,
                newest_time=newest,
                revocations=self._memory.known.revocations,
                floors=self._memory.known.floors,
                flavors=self._runtimes.flavors(trust),
            )
            task = verify_work(work, trust, host, now)
            # Only a task that passed everything teaches time: a refused one could come
            # from a thief.
            self._memory.learn_time(task.admission.proven.agreed_time)
        checkpoint = seen_checkpoint(parse_proof(work.read(workunit.PROOF)).checkpoint)
        return VerifiedWorkunit(task, trust, checkpoint)

    def _load_trust(self, pack: bytes, now: int) -> TrustedRelease:
        """Return the verified release: this pack's, or a newer one already known.

        Copies sent out before a refresh carry the older pack; they are verified by the
        newest release that this host has seen. Expiry is verified by the day of the
        admission (`verify_work`); here only what no admission could be old enough for
        is refused, because nothing of the admission is read before its signature holds.
        """
        digest, oldest = content_digest(pack), now - MAX_LIFETIME_S
        known = self._known
        if known and known.digest == digest and oldest < known.trust.expires:
            return known.trust
        newest = self._state / RELEASE_PACK
        try:
            trust = self._load(pack, now, oldest)
        except TrustError as error:
            older = _read_pack(newest) if error.code == OLDER else b""
            # Nothing newer is known here, so the pack itself is at fault.
            if not older:
                raise
            return self._load(older, now, oldest)
        # Kept for `--explain` and `--self-check`, and for tasks that bring an older
        # pack.
        if known is None or known.digest != digest:
            replace_file(newest, pack)
        self._known = _Known(digest, trust)
        return trust

    def _load(self, pack: bytes, now: int, oldest: int) -> TrustedRelease:
        return load_trust(
            parse_release_pack(pack),
            self._root,
            now,
            installed=self._installed,
            cache=self._state / "tuf",
            reference=oldest,
            release_build=self._strict,
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with disk_trouble("the state directory cannot be used"):
            lock = os.open(self._state / "lock", flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _read_pack(path: Path) -> bytes:
    """Return the newest pack, empty without one; raises ``STO-X008``."""
    with disk_trouble(f"{path.name} cannot be read"), suppress(FileNotFoundError):
        return path.read_bytes()
    return b""
