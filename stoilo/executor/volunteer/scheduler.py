"""When a volunteer calls its project's scheduler, what it says and what it takes.

Pauses grow with jitter up to a bound, and a call that failed looks the scheduler up on the
master page again: projects move. All waiting is on the monotonic clock.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import msgspec

from stoilo.core.boinc.codesign import check_key_change, parse_boinc_public
from stoilo.core.boinc.messages import (
    HostInfo,
    OtherResult,
    ReportedResult,
    ResultState,
    SchedulerReply,
    SchedulerRequest,
    Wishes,
)
from stoilo.core.errors import DeniedError, TrustError, UnreachableError
from stoilo.core.rate_limit import Backoff
from stoilo.executor.verifier.checkpoints import AppStatus
from stoilo.executor.volunteer.ledger import (
    FileRecord,
    HostRecord,
    Ledger,
    Phase,
    ProjectMemory,
    ResultRecord,
)
from stoilo.executor.volunteer.scheduler_rpc import CLIENT_VERSION, PLATFORM
from stoilo.executor.volunteer.transfer import Transfer


@dataclass(frozen=True, slots=True)
class Settings:
    """How one volunteer works."""

    project: str  # master URL with final slash
    key: str  # account key. Secret
    slots: int = 1  # copies run at the same time
    cache_bytes: int = 2 * 1024**3  # most that sticky inputs may take, bytes
    # longest pause between two calls when the project names none, s
    idle_s: float = 5.0
    # first and longest pause after a failed call, s
    backoff_s: tuple[float, float] = (0.5, 60.0)
    # what the project is asked not to send, since it would be refused
    wishes: Wishes = field(default_factory=Wishes)
    # copies run by what is installed here, not by app versions
    own_program: bool = True


class Retries:
    """When each copy may be tried again. For one thread.

    Args:
        backoff_s: first and longest pause, s.
        clock: s, monotonic: a computer whose time is set waits neither more nor less.
    """

    def __init__(
        self,
        backoff_s: tuple[float, float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bounds = backoff_s
        self._clock = clock
        self._pauses: dict[str, Backoff] = {}
        self._at: dict[str, float] = {}

    def put_off(self, result: str, at_least_s: float = 0.0) -> None:
        """Try a copy again later: growing pauses, not before `at_least_s`."""
        pauses = self._pauses.setdefault(result, Backoff(*self._bounds))
        self._at[result] = self._clock() + max(at_least_s, pauses.next_pause())

    def is_ready(self, result: str) -> bool:
        """Say whether a copy may be tried now."""
        return self.at(result) <= self._clock()

    def at(self, result: str) -> float:
        """Return when a copy may be tried, on the clock."""
        return self._at.get(result, 0.0)

    def forget(self, result: str) -> None:
        """Note that a copy went well, or away."""
        self._at.pop(result, None)
        self._pauses.pop(result, None)

    def clear(self) -> None:
        """Let everything be tried at once, pauses starting small again."""
        self._at.clear()
        self._pauses.clear()


log = logging.getLogger(__name__)

AGAIN_S = 0.02  # pause between calls whose answers are held
LONGEST_DELAY_S = 24 * 3600.0
"""No project silences its volunteers for longer."""


class Caller:
    """The scheduler calls of one host. For one thread."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        transfer: Transfer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._transfer = transfer
        self._clock = clock
        self._backoff = Backoff(*settings.backoff_s)
        self._next = 0.0
        self._not_before = 0.0

    def is_due(self, *, reports: bool) -> bool:
        """Say whether to call now; `reports`: something waits to be reported."""
        now = self._clock()
        return now >= self._not_before and (reports or now >= self._next)

    def due_in(self, *, reports: bool) -> float:
        """Return how long no call is due, s."""
        at = self._not_before if reports else max(self._next, self._not_before)
        return max(0.0, at - self._clock())

    def hurry(self) -> None:
        """Call as soon as the project allows."""
        self._next = 0.0

    def insist(self) -> None:
        """Call now, whatever was said: a person asked for it."""
        self._next = self._not_before = 0.0
        self._backoff.reset()

    def fail(self) -> float:
        """Note a failure; returns the pause, s."""
        pause = self._backoff.next_pause()
        self._not_before = self._clock() + pause
        return pause

    def call(
        self, make_request: Callable[[HostRecord], SchedulerRequest]
    ) -> tuple[SchedulerRequest, SchedulerReply]:
        """Make one call; the new sequence number is on the disk before it leaves.

        Raises:
            UnreachableError: no answer, or the project says that it is down; the next
                call looks the scheduler up again.
            TrustError: an answer that cannot be read, likewise.
            DeniedError: ``STO-E016``, the key is unknown.
        """
        try:
            request, reply = self._exchange(make_request)
        except (UnreachableError, TrustError) as error:
            log.info("%s; next call in %.1f s", error, self.fail())
            host = self._ledger.host
            self._ledger.save_host(msgspec.structs.replace(host, scheduler=""))
            raise
        if reply.bad_key:
            raise DeniedError(
                "STO-E016",
                "the project does not know this account key",
                hint="its page says how to get one; or attach with --email",
            )
        self._backoff.reset()
        return request, reply

    def plan(self, reply: SchedulerReply, *, idle: bool) -> None:
        """Take the project's word on when to call again; `idle`: nothing is held."""
        now = self._clock()
        self._not_before = now + min(reply.request_delay, LONGEST_DELAY_S)
        pause = min(reply.next_rpc_delay or self._settings.idle_s, LONGEST_DELAY_S)
        self._next = now + (min(AGAIN_S, pause) if idle and reply.waits else pause)

    def _exchange(
        self, make_request: Callable[[HostRecord], SchedulerRequest]
    ) -> tuple[SchedulerRequest, SchedulerReply]:
        host = self._ledger.host
        scheduler = host.scheduler or self._transfer.scheduler_url()
        host = msgspec.structs.replace(
            host, scheduler=scheduler, rpc_seqno=host.rpc_seqno + 1
        )
        self._ledger.save_host(host)
        request = make_request(host)
        reply = self._transfer.call(scheduler, request)
        if reply.down:
            raise UnreachableError("STO-X001", "the project is down for maintenance")
        return request, reply


PREFETCHED: Final = 2
"""Copies held per slot: one runs, one waits."""

MOST_PER_SLOT: Final = 4 * PREFETCHED
"""Unfinished copies held per slot, however many a project sends: more than are asked for,
since copies that were lost come again unasked."""

MOST_MESSAGES: Final = 20
"""Of the project, remembered."""

MOST_STICKY: Final = 1000
"""Files named in a request."""

WAIT_S: Final = 1.0
"""How long a host that runs nothing lets the project hold its answer, s."""


def _unfinished(name: str, said: AppStatus | None) -> OtherResult:
    if said is None:
        return OtherResult(name)
    return OtherResult(name, said.fraction_done, said.current_cpu_time)


def request_of(
    host: HostRecord,
    settings: Settings,
    copies: Sequence[ResultRecord],
    *,
    info: HostInfo | None = None,
    code_sign_key: str = "",
    sticky_files: Sequence[str] = (),
    progress: Mapping[str, AppStatus] = MappingProxyType({}),
    wants_work: bool = True,
    may_wait: bool = True,
) -> SchedulerRequest:
    """Return the next request: what is done, what is not, what is wanted.

    `info`: of this computer. `code_sign_key`: the project's, empty before the first.
    `sticky_files`: inputs that are kept. `progress`: what running copies say of
    themselves, by result name. `may_wait`: whether the project may hold an answer without news.
    """
    over = [copy for copy in copies if is_over(copy)]
    unfinished = [copy for copy in copies if not is_over(copy)]
    waiting = [copy for copy in copies if copy.phase is Phase.ASSIGNED]
    # One ahead, so that a slot does not stand idle for a whole scheduler call.
    wanted = settings.slots * PREFETCHED - len(waiting) if wants_work else 0
    return SchedulerRequest(
        authenticator=settings.key,
        host_id=host.host_id,
        rpc_seqno=host.rpc_seqno,
        cpid=host.cpid,
        cpu_req_secs=float(max(0, wanted)),
        cpu_req_instances=float(max(0, wanted)),
        dont_send_work=not wants_work,
        ncpus=settings.slots,
        results=tuple(report_of(copy) for copy in over),
        other_results=tuple(
            _unfinished(copy.result, progress.get(copy.result)) for copy in unfinished
        ),
        wait_s=WAIT_S if may_wait and not unfinished else 0.0,
        wishes=settings.wishes,
        own_program=settings.own_program,
        takes_content=True,
        client=CLIENT_VERSION,
        platforms=(PLATFORM,),
        host=info or HostInfo(),
        code_sign_key=code_sign_key,
        sticky_files=tuple(sticky_files[:MOST_STICKY]),
    )


def identity_after(host: HostRecord, reply: SchedulerReply) -> HostRecord:
    """Return who we are after a reply: the project may have given us an id.

    A new id for a host that had one means that our state was copied: from now on
    we are a host of our own, with an identity of our own.
    """
    if not reply.host_id or reply.host_id == host.host_id:
        return host
    # Somebody copied the state directory, and the project noticed by the sequence
    # number.
    if host.host_id:
        host = msgspec.structs.replace(host, cpid=secrets.token_hex(16), rpc_seqno=0)
    return msgspec.structs.replace(host, host_id=reply.host_id)


def memory_after(
    known: ProjectMemory, reply: SchedulerReply, key: str
) -> ProjectMemory:
    """Return what is remembered after a reply, with the code-sign `key` that counts.

    A message that is repeated counts once, as the newest.
    """
    before = [text for text in known.messages if text not in reply.messages]
    return ProjectMemory(
        code_sign_key=key,
        user=reply.user or known.user,
        preferences=reply.project_preferences or known.preferences,
        messages=(*before, *dict.fromkeys(reply.messages))[-MOST_MESSAGES:],
    )


def key_after(known: str, reply: SchedulerReply) -> str:
    """Return the code-sign key that counts after a (hostile) reply.

    It is trusted on first use, as BOINC's client does: it protects no more than that later
    programs come from whom the first came from.

    Raises:
        TrustError: STO-X040 the reply has another key that the known one did not sign, or
            one that cannot be read.
    """
    told = reply.code_sign_key
    if not told or told == known:
        return known
    try:
        new = parse_boinc_public(told)
        if known:
            old = parse_boinc_public(known)
            check_key_change(new, reply.code_sign_key_signature, old)
    except TrustError as error:
        raise TrustError(
            "STO-X040",
            "the project shows another code-sign key than this computer knows",
            hint="ask the project whether it changed its key; `stoilo volunteer detach` "
            "and `attach` accept a new one",
        ) from error
    return told


def is_over(copy: ResultRecord) -> bool:
    """Say whether a copy only waits to be reported."""
    return copy.phase in {Phase.UPLOADED, Phase.FAILED}


def report_of(copy: ResultRecord) -> ReportedResult:
    """Return what is told about a copy that is over."""
    if copy.phase is Phase.UPLOADED:
        return ReportedResult(
            copy.result, ResultState.UPLOADED, elapsed_s=copy.elapsed_s
        )
    return ReportedResult(copy.result, copy.state, copy.exit_status, stderr=copy.code)


def records_of(reply: SchedulerReply) -> list[ResultRecord]:
    """Return the copies that a reply assigns, with everything they need."""
    workunits = {item.name: item for item in reply.workunits}
    uploads = {info.name: info for info in reply.uploads}
    files = {info.name: info for info in reply.files}
    records = []
    for result in reply.results:
        workunit, upload = workunits[result.workunit], uploads[result.upload]
        inputs = tuple(
            FileRecord(ref.open_name, replace(files[ref.file_name], content=b""))
            for ref in workunit.files
        )
        records.append(
            ResultRecord(
                result=result.name,
                workunit=result.workunit,
                app=workunit.app,
                deadline=result.deadline,
                files=inputs,
                upload_name=upload.name,
                upload_url=upload.url,
                upload_max=upload.max_nbytes,
            )
        )
    return records


def within_room(
    records: Sequence[ResultRecord], held: Sequence[ResultRecord], slots: int
) -> list[ResultRecord]:
    """Return a reply's copies that are taken: known ones, new ones while there is room.

    The others stay the project's: it finds at the next call that we lack them.

    `records`: what the reply assigns (untrusted).
    """
    held_names = {copy.result for copy in held}
    known = [record for record in records if record.result in held_names]
    fresh = {r.result: r for r in records if r.result not in held_names}
    unfinished = sum(not is_over(copy) for copy in held)
    room = max(0, slots * MOST_PER_SLOT - unfinished)
    return known + list(fresh.values())[:room]
