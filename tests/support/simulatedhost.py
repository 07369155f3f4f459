"""A host that keeps to BOINC's rules as far as a scheduler can see, and how it behaves."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from stoilo.core.boinc.messages import (
    FileInfo,
    HostInfo,
    OtherResult,
    ReportedResult,
    ResultState,
    SchedulerReply,
    SchedulerRequest,
    UploadInfo,
    Wishes,
)
from stoilo.executor.verifier.workunit import Disposition, ResultHeader, render_result
from stoilo.executor.volunteer.scheduler_rpc import CLIENT_VERSION, PLATFORM
from stoilo.executor.volunteer.transfer import Refused
from tests.support.hostwire import HostWire

__all__ = ["Behaviour", "CrowdReport", "SimulatedHost", "make_hosts"]

Answer = Callable[[bytes], bytes]

FORGETS = 0.1  # of a forgetful host's steps
DIES = 0.2  # of a mortal host's moments
SLOW_ROUNDS = 3
EXIT_UPLOAD = -161


class Behaviour(StrEnum):
    """What kind of host it is."""

    HONEST = "honest"
    SLOW = "slow"  # holds every copy for some calls before it is done
    MORTAL = "mortal"  # is killed at any step, comes back with what was on its disk
    FORGETFUL = "forgetful"  # loses its copies now and then; asks as if it had none
    CHEAT = "cheat"  # returns an answer of its own
    CLONE = "clone"  # its state directory was copied: two computers say they are it


@dataclass(slots=True)
class Held:
    """A copy on a host: what it needs, where it goes, how far it is."""

    files: tuple[FileInfo, ...]
    workunit: str
    upload: UploadInfo
    rounds: int = 0
    uploaded: bool = False
    refused: bool = False

    @property
    def over(self) -> bool:
        """Whether it only waits to be reported."""
        return self.uploaded or self.refused


@dataclass(slots=True)
class CrowdReport:
    """What the crowd saw; times in s."""

    calls: int = 0
    seconds: list[float] = field(default_factory=list)
    troubles: Counter[str] = field(default_factory=Counter)
    uploads: int = 0

    def percentile(self, share: float) -> float:
        """Return the time within which that share of the calls was answered, s."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class SimulatedHost:
    """One host; `step` is everything between two pauses. For one thread at a time.

    Args:
        key: account key.
        behaviour: what kind of host it is.
        seed: of its own draws.
        answer: what it computes of the input called ``arguments``.
        slots: processors.
        pause_s: longest pause between two calls, whatever the project allows.
        wishes: what it asks not to be sent.
        info: what it says of itself.
    """

    def __init__(
        self,
        key: str,
        behaviour: Behaviour = Behaviour.HONEST,
        *,
        seed: int = 0,
        answer: Answer = lambda data: data,
        slots: int = 1,
        pause_s: float = 1.0,
        wishes: Wishes | None = None,
        info: HostInfo | None = None,
    ) -> None:
        self.key = key
        self.behaviour = behaviour
        self.answer = answer
        self.draw = random.Random(seed)
        self.cpid = f"{self.draw.getrandbits(128):032x}"
        self.host_id = 0
        self.rpc_seqno = 0
        self.held: dict[str, Held] = {}
        self.done: list[str] = []
        self.slots = slots
        self.pause_s = pause_s
        self.wishes = wishes or Wishes()
        self.info = info or HostInfo(vendor="GenuineIntel", os_name="Linux")

    def step(self, wire: HostWire, report: CrowdReport) -> float:
        """Work, report and ask once; returns the pause until the next step, s.

        Raises:
            UnreachableError: the project was in trouble; what was done is kept.
        """
        if self.behaviour is Behaviour.FORGETFUL and self.draw.random() < FORGETS:
            self.held.clear()
        for name, held in list(self.held.items()):
            if held.over or self._dies():
                continue
            try:
                self._work(wire, name, held, report)
            except Refused as error:
                report.troubles[error.message] += 1
                held.refused = True
        if self._dies():
            return self.draw.random() * self.pause_s
        return self._call(wire, report)

    def copy_state(self) -> SimulatedHost:
        """Return a host that starts from a copy of this one's state."""
        twin = SimulatedHost(
            self.key,
            Behaviour.HONEST,
            seed=self.draw.getrandbits(64),
            answer=self.answer,
            slots=self.slots,
            pause_s=self.pause_s,
            wishes=self.wishes,
            info=self.info,
        )
        twin.cpid, twin.host_id = self.cpid, self.host_id
        twin.rpc_seqno = self.rpc_seqno
        twin.held = {
            name: Held(held.files, held.workunit, held.upload)
            for name, held in self.held.items()
        }
        return twin

    def _dies(self) -> bool:
        """Whether it is killed here: what follows in this step does not happen."""
        return self.behaviour is Behaviour.MORTAL and self.draw.random() < DIES

    def _work(self, wire: HostWire, name: str, held: Held, report: CrowdReport) -> None:
        """Bring one copy forward."""
        held.rounds += 1
        if self.behaviour is Behaviour.SLOW and held.rounds < SLOW_ROUNDS:
            return
        inputs = [wire.download(file) for file in held.files]
        frame = self.answer(inputs[0])
        if self.behaviour is Behaviour.CHEAT:
            frame = b"lie of " + self.cpid.encode()
        header = ResultHeader(
            format="stoilo-result/1",
            result=name,
            workunit=held.workunit,
            disposition=Disposition.RAN,
        )
        wire.upload(held.upload, render_result(header, frame, b""))
        report.uploads += 1
        held.uploaded = True

    def _call(self, wire: HostWire, report: CrowdReport) -> float:
        """Make one scheduler RPC and take its reply; returns the pause, s."""
        self.rpc_seqno += 1
        request = self.request()
        began = time.monotonic()
        reply = wire.call(request)
        report.seconds.append(time.monotonic() - began)
        report.calls += 1
        if not self._dies():  # a killed host never saw the answer
            self._take(request, reply)
        return max(reply.request_delay, min(reply.next_rpc_delay, self.pause_s))

    def request(self) -> SchedulerRequest:
        """Return what it would ask now."""
        wanted = max(0, 2 * self.slots - len(self.held))
        return SchedulerRequest(
            authenticator=self.key,
            host_id=self.host_id,
            rpc_seqno=self.rpc_seqno,
            cpid=self.cpid,
            cpu_req_secs=float(wanted),
            cpu_req_instances=float(wanted),
            ncpus=self.slots,
            results=tuple(
                _report(name, held) for name, held in self.held.items() if held.over
            ),
            other_results=tuple(
                OtherResult(name) for name, held in self.held.items() if not held.over
            ),
            wishes=self.wishes,
            own_program=True,
            client=CLIENT_VERSION,
            platforms=(PLATFORM,),
            host=self.info,
        )

    def _take(self, request: SchedulerRequest, reply: SchedulerReply) -> None:
        """Take a reply as a client does."""
        if reply.host_id and reply.host_id != self.host_id:
            if self.host_id:  # our state was copied: from now on a host of our own
                self.cpid = f"{self.draw.getrandbits(128):032x}"
                self.rpc_seqno = 0
            self.host_id = reply.host_id
        reported = {result.name for result in request.results}
        for name in reported & set(reply.acks):
            if self.held.pop(name, None) is not None:
                self.done.append(name)
        for name in reply.aborts:
            self.held.pop(name, None)
        files = {file.name: file for file in reply.files}
        uploads = {upload.name: upload for upload in reply.uploads}
        workunits = {item.name: item for item in reply.workunits}
        for result in reply.results:
            refs = workunits[result.workunit].files
            inputs = tuple(files[ref.file_name] for ref in refs)
            held = Held(inputs, result.workunit, uploads[result.upload])
            self.held.setdefault(result.name, held)


def _report(name: str, held: Held) -> ReportedResult:
    """Return what is told about a copy that is over."""
    if held.refused:
        return ReportedResult(name, ResultState.COMPUTE_ERROR, EXIT_UPLOAD)
    return ReportedResult(name, ResultState.UPLOADED, cpu_s=1.0, elapsed_s=1.0)


def make_hosts(
    keys: Sequence[str],
    *,
    seed: int,
    behaviours: Mapping[Behaviour, float] | None = None,
    answer: Answer = lambda data: data,
    pause_s: float = 1.0,
) -> list[SimulatedHost]:
    """Return a host for each account key.

    Args:
        keys: account keys; a key that comes twice has two hosts.
        seed: of every draw.
        behaviours: share of the hosts of each kind, in order; the rest are honest.
        answer: what honest hosts compute.
        pause_s: longest pause between two calls of a host.
    """
    kinds: list[Behaviour] = []
    for kind, share in (behaviours or {}).items():
        kinds += [kind] * round(share * len(keys))
    kinds += [Behaviour.HONEST] * (len(keys) - len(kinds))
    random.Random(seed).shuffle(kinds)
    return [
        SimulatedHost(
            key, kind, seed=seed * 100_003 + n, answer=answer, pause_s=pause_s
        )
        for n, (key, kind) in enumerate(zip(keys, kinds, strict=False))
    ]
