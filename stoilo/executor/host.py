"""One host of one project: its state on the disk, its runs, its calls.

Everything that must not be lost is in the ledger before the next step begins; kill -9 at
any moment costs at most the run in progress. A project that cannot be reached is called
again with growing pauses.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec

from stoilo.core.errors import (
    DeniedError,
    InternalError,
    StoiloError,
    TrustError,
    UnreachableError,
)
from stoilo.executor.assignments import (
    identity_after,
    is_over,
    records_of,
    report_of,
)
from stoilo.executor.execute import Executor, Work
from stoilo.executor.ledger import CopyRecord, Ledger, Phase, touch
from stoilo.executor.messages import (
    OtherResult,
    ResultState,
    SchedulerReply,
    SchedulerRequest,
)
from stoilo.executor.pace import Backoff, Settings
from stoilo.executor.result import Disposition, parse_result_header
from stoilo.executor.transfer import Refused, Transfer, matches
from stoilo.executor.workdir import open_name_bound

__all__ = ["Volunteer"]

log = logging.getLogger(__name__)

MOST_TRIES = 3
EXIT_LATE = 200  # BOINC: not started by the deadline
EXIT_BY_PROJECT = 202  # BOINC: not begun, nobody needs it
EXIT_DOWNLOAD = -186  # BOINC: ERR_RESULT_DOWNLOAD
EXIT_CHILD = 195  # BOINC: the application's child failed
EXIT_UPLOAD = -161
PREFETCHED = 2  # copies held per slot: one runs, one waits
WAIT_S = 1.0  # how long an idle host lets the project hold its answer
AGAIN_S = 0.02  # pause between calls whose answers are held


class Volunteer:
    """One host of one project, from its state directory on."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        transfer: Transfer,
        executor: Executor,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._transfer = transfer
        self._executor = executor
        self._clock = clock
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._stopping = False
        self._running: dict[str, Future[None]] = {}
        self._unwanted: set[str] = set()
        self._retry_at: dict[str, float] = {}
        self._pauses: dict[str, Backoff] = {}
        self._downloads = threading.Lock()
        self._calls = self._new_backoff()
        self._next_call = 0.0
        self._not_before = 0.0
        self._pool = ThreadPoolExecutor(settings.slots, thread_name_prefix="slot")

    def run(self) -> None:
        """Work until `stop`.

        Raises:
            DeniedError: ``STO-X003``, the key is unknown.
        """
        while not self._stopping:
            self._forget_wakes()
            try:
                self.tick()
            except (InternalError, OSError) as error:  # a full disk: it may pass
                pause = self._calls.fail()
                log.warning("%s; going on in %.1f s", error, pause)
                self._wait(pause)
            self._wait(max(0.0, self._pause()))

    def stop(self) -> None:
        """End `run` soon; safe from a signal handler.

        An `Event` is not: its lock may be held by the very thread that the handler
        interrupts. `SimpleQueue.put` is reentrant.
        """
        self._stopping = True
        self._wakes.put(None)

    def _wait(self, seconds: float) -> None:
        if self._stopping:
            return
        try:
            self._wakes.get(timeout=seconds)
        except Empty:
            pass

    def _forget_wakes(self) -> None:
        while not self._wakes.empty():
            self._wakes.get()

    def close(self) -> None:
        """Kill every run; what is on the disk goes on at the next start."""
        self.stop()
        self._transfer.close()
        self._executor.close()
        self._pool.shutdown(cancel_futures=True)
        self._ledger.close()

    def tick(self) -> None:
        """Do once whatever can be done now, without waiting for runs."""
        self._collect()
        self._start_runs()  # first, so that slots work while results travel
        self._upload_finished()
        if self._call_is_due():
            self._call()
        self._start_runs()

    # ------------------------------------------------------------------ runs

    def _start_runs(self) -> None:
        """Start copies on free slots, the earliest deadline first."""
        for copy in self._ledger.copies():
            if len(self._running) >= self._settings.slots:
                return
            ready = self._retry_at.get(copy.result, 0.0) <= time.monotonic()
            idle = copy.result not in self._running
            if copy.phase is Phase.ASSIGNED and idle and ready:
                future = self._pool.submit(self._work, copy)
                self._running[copy.result] = future
                future.add_done_callback(lambda _: self._wakes.put(None))

    def _collect(self) -> None:
        """Take note of runs that ended."""
        for result, future in list(self._running.items()):
            if not future.done():
                if result in self._unwanted:
                    self._executor.cancel(result)
                continue
            del self._running[result]
            if result in self._unwanted:
                self._forget(result)
                continue
            error = future.exception()
            if error is None:
                self._pauses.pop(result, None)
            elif isinstance(error, StoiloError):
                self._note_trouble(result, error)
            else:
                raise error

    def _work(self, copy: CopyRecord) -> None:
        """Download, verify, run and keep the result of one copy (in a slot)."""
        if self._clock() >= copy.deadline:
            self._fail(copy, ResultState.ABORTED, EXIT_LATE, "STO-E022")
            return
        try:
            self._run_copy(copy)
        except OSError as error:
            raise InternalError(
                "STO-X008", f"this machine cannot run a copy (errno {error.errno})"
            ) from error

    def _run_copy(self, copy: CopyRecord) -> None:
        """Bring one copy from its inputs to its stored result."""
        paths = self._fetch(copy)
        if self._stopping or copy.result in self._unwanted:
            return
        names = [file.open_name for file in copy.files]
        files = tuple(zip(names, paths, strict=True))
        data = self._executor.execute(Work(copy.result, copy.workunit, copy.app, files))
        if parse_result_header(data).disposition is Disposition.REFUSED:
            self._drop_damaged(copy, paths)
        if len(data) > copy.upload_max:
            self._fail(copy, ResultState.COMPUTE_ERROR, EXIT_CHILD, "STO-X006")
            return
        self._ledger.store_result(copy, data)

    def _fetch(self, copy: CopyRecord) -> list[Path]:
        """Bring a copy's inputs here, each within the bound of what it is."""
        paths = []
        for file in copy.files:
            bound = open_name_bound(file.open_name)
            if file.nbytes > bound:
                raise TrustError("STO-X011", f"{file.open_name[:60]!r} is too large")
            target = self._ledger.files / file.name
            with self._downloads:
                self._transfer.download(file, target)
            paths.append(target)
        touch(paths)
        return paths

    def _drop_damaged(self, copy: CopyRecord, paths: list[Path]) -> None:
        """Remove cached inputs that are not what was announced, and try again.

        A refusal may come from our own disk; then it is nobody's fault.
        """
        damaged = [
            path
            for file, path in zip(copy.files, paths, strict=True)
            if not matches(file, path)
        ]
        for path in damaged:
            path.unlink(missing_ok=True)
        if damaged:
            raise InternalError("STO-X005", "a cached input was damaged")

    def _note_trouble(self, result: str, error: StoiloError) -> None:
        """Decide what becomes of a copy whose run ended in `error`."""
        copy = self._ledger.find(result)
        if copy is None or self._stopping:
            return
        log.warning("%s: %s", result, error)
        spoilt = error.code == "STO-X005"  # by the way here or our disk: may pass
        if isinstance(error, Refused) or (isinstance(error, TrustError) and not spoilt):
            self._fail(copy, ResultState.DOWNLOAD_ERROR, EXIT_DOWNLOAD, error.code)
        elif isinstance(error, UnreachableError):
            self._put_off(result)
        elif copy.tries + 1 >= MOST_TRIES:
            self._fail(copy, ResultState.COMPUTE_ERROR, EXIT_CHILD, error.code)
        else:
            self._ledger.save(msgspec.structs.replace(copy, tries=copy.tries + 1))
            self._put_off(result)

    def _fail(self, copy: CopyRecord, state: int, exit_status: int, code: str) -> None:
        """Note, durably, that a copy is to be reported as failed."""
        self._ledger.save(
            msgspec.structs.replace(
                copy,
                phase=Phase.FAILED,
                state=state,
                exit_status=exit_status,
                code=code,
            )
        )

    def _put_off(self, result: str) -> None:
        """Try a copy again later."""
        pause = self._pauses.setdefault(result, self._new_backoff()).fail()
        self._retry_at[result] = time.monotonic() + pause

    def _forget(self, result: str) -> None:
        """Remove a copy and everything noted about it."""
        self._unwanted.discard(result)
        self._retry_at.pop(result, None)
        self._pauses.pop(result, None)
        self._ledger.remove(result)

    # ------------------------------------------------------------------ uploads

    def _upload_finished(self) -> None:
        """Send finished results; the project's trouble only puts them off."""
        for copy in self._ledger.copies():
            ready = self._retry_at.get(copy.result, 0.0) <= time.monotonic()
            if copy.phase is not Phase.FINISHED or not ready:
                continue
            try:
                self._transfer.upload(copy, self._ledger.result_path(copy.result))
            except Refused as error:
                log.warning("%s: %s", copy.result, error)
                self._fail(copy, ResultState.COMPUTE_ERROR, EXIT_UPLOAD, error.code)
            except (UnreachableError, TrustError) as error:
                log.info("%s: %s", copy.result, error)
                self._put_off(copy.result)
            else:
                self._ledger.save(msgspec.structs.replace(copy, phase=Phase.UPLOADED))
                self._next_call = 0.0

    # ------------------------------------------------------------------ calls

    def _call_is_due(self) -> bool:
        """Say whether to call the scheduler now."""
        now = time.monotonic()
        if now < self._not_before:
            return False
        reports = any(is_over(copy) for copy in self._ledger.copies())
        return reports or now >= self._next_call

    def _call(self) -> None:
        """Make one scheduler RPC and take its reply."""
        try:
            reply = self._make_call()
        except (UnreachableError, TrustError) as error:
            pause = self._calls.fail()
            log.info("%s; next call in %.1f s", error, pause)
            self._not_before = time.monotonic() + pause
            self._ledger.save_host(
                msgspec.structs.replace(self._ledger.host, scheduler="")
            )
            return
        self._calls.reset()
        now = time.monotonic()
        self._not_before = now + min(reply.request_delay, 3600.0)
        pause = reply.next_rpc_delay or self._settings.idle_s
        idle = reply.waits and not self._ledger.copies()
        self._next_call = now + (min(AGAIN_S, pause) if idle else pause)

    def _make_call(self) -> SchedulerReply:
        """Ask the scheduler and write down what it said."""
        host = self._ledger.host
        scheduler = host.scheduler or self._transfer.scheduler_url()
        host = msgspec.structs.replace(
            host, scheduler=scheduler, rpc_seqno=host.rpc_seqno + 1
        )
        self._ledger.save_host(host)
        request = self._request()
        reply = self._transfer.call(scheduler, request)
        if reply.bad_key:
            raise DeniedError(
                "STO-X003",
                "the project does not know this account key",
                hint="make one with `stoilo boinc account`",
            )
        for message in reply.messages:
            log.info("project: %s", message)
        self._take_reply(request, reply)
        return reply

    def _request(self) -> SchedulerRequest:
        """Return the next request: what is done, what is not, what is wanted."""
        host, copies = self._ledger.host, self._ledger.copies()
        over = [copy for copy in copies if is_over(copy)]
        unfinished = [copy for copy in copies if not is_over(copy)]
        waiting = [copy for copy in copies if copy.phase is Phase.ASSIGNED]
        wanted = self._settings.slots * PREFETCHED - len(waiting)
        return SchedulerRequest(
            authenticator=self._settings.key,
            host_id=host.host_id,
            rpc_seqno=host.rpc_seqno,
            cpid=host.cpid,
            cpu_req_secs=float(max(0, wanted)),
            cpu_req_instances=float(max(0, wanted)),
            ncpus=self._settings.slots,
            results=tuple(report_of(copy) for copy in over),
            other_results=tuple(OtherResult(copy.result) for copy in unfinished),
            wishes=self._settings.wishes,
            wait_s=0.0 if copies or self._stopping else WAIT_S,
        )

    def _take_reply(self, request: SchedulerRequest, reply: SchedulerReply) -> None:
        """Write down a reply: who we are, what is acknowledged, dropped, assigned."""
        host = self._ledger.host
        if (known := identity_after(host, reply)) != host:
            self._ledger.save_host(known)
        reported = {result.name for result in request.results}
        for name in reply.acks:
            if name in reported:
                self._forget(name)
        for name in reply.aborts:
            if name in self._running:
                self._unwanted.add(name)
                self._executor.cancel(name)
            else:
                self._forget(name)
        for copy in self._ledger.copies():
            begun = copy.phase is not Phase.ASSIGNED or copy.result in self._running
            if copy.result in reply.aborts_unstarted and not begun:
                self._fail(copy, ResultState.ABORTED, EXIT_BY_PROJECT, "STO-E022")
        for record in records_of(reply):
            self._ledger.add(record)
        self._ledger.trim_files(self._settings.cache_bytes)

    def _pause(self) -> float:
        """Return how long nothing will be due, s."""
        now = time.monotonic()
        times = [max(self._next_call, self._not_before)]
        for copy in self._ledger.copies():
            if copy.result in self._running:
                continue
            if is_over(copy):
                times.append(self._not_before)
            elif copy.phase is Phase.FINISHED or self._has_room():
                times.append(self._retry_at.get(copy.result, 0.0))
        return min(min(times) - now, self._settings.idle_s)

    def _has_room(self) -> bool:
        """Say whether a slot is free."""
        return len(self._running) < self._settings.slots

    def _new_backoff(self) -> Backoff:
        """Return fresh pauses by our settings."""
        return Backoff(*self._settings.backoff_s)
