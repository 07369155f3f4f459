"""One host of one project: its state on the disk, its runs, its calls.

Everything that must not be lost is in the ledger before the next step begins; kill -9 at
any moment costs at most the run in progress. A project that cannot be reached is called
again with growing pauses.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import msgspec

from stoilo.core.background import Wakeup
from stoilo.core.boinc.messages import (
    AppVersion,
    ResultState,
    SchedulerReply,
    SchedulerRequest,
)
from stoilo.core.errors import (
    DeniedError,
    InternalError,
    StoiloError,
    TrustError,
    UnreachableError,
    show_plainly,
)
from stoilo.executor.slot.executor import Executor
from stoilo.executor.slot.layout import PutOffError
from stoilo.executor.volunteer.host_info import describe_host, free_bytes
from stoilo.executor.volunteer.ledger import (
    HostRecord,
    Ledger,
    Phase,
    recall,
)
from stoilo.executor.volunteer.scheduler import (
    Caller,
    Retries,
    Settings,
    identity_after,
    is_over,
    key_after,
    memory_after,
    records_of,
    request_of,
    within_room,
)
from stoilo.executor.volunteer.status import CONTROL_FILE, Control, StatusFile
from stoilo.executor.volunteer.task_run import Course, ResultRun, decide
from stoilo.executor.volunteer.transfer import Transfer, keep_content

log = logging.getLogger(__name__)

EXIT_ABORTED = 202  # BOINC: aborted by the project
LOOK_S = 1.0  # how soon a person's wish is noticed


class Volunteer:
    """One host of one project, from its state directory on.

    Args:
        settings: how it works.
        ledger: what it must not lose.
        transfer: to the project.
        executor: judges and runs copies.
        clock: s since 1970; only deadlines are judged by it.
        on_app_versions: takes what the project sends as programs.
    """

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        transfer: Transfer,
        executor: Executor,
        *,
        clock: Callable[[], float] = time.time,
        on_app_versions: Callable[[tuple[AppVersion, ...]], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._transfer = transfer
        self._executor = executor
        self._learn_programs = on_app_versions
        before = recall(ledger.directory / CONTROL_FILE, Control, Control())
        self._control = Control(updates=before.updates)  # asked before we began
        self._standing = StatusFile(ledger.directory)
        self._computer = describe_host(ledger.directory)
        self._waking = Wakeup()
        self._running: dict[str, Future[None]] = {}
        self._unwanted: set[str] = set()
        self._put_offs: dict[str, int] = {}
        self._retries = Retries(settings.backoff_s)
        self._caller = Caller(settings, ledger, transfer)
        self._no_work_before = 0.0
        self._work = ResultRun(
            ledger,
            transfer,
            executor,
            is_wanted=lambda result: (
                not self._waking.stopping and result not in self._unwanted
            ),
            clock=clock,
        )
        self._pool = ThreadPoolExecutor(settings.slots, thread_name_prefix="slot")
        self._keep_slots()

    def run(self) -> None:
        """Work until `stop`.

        Raises:
            DeniedError: ``STO-E016``, the key is unknown.
        """
        while not self._waking.stopping:
            self._waking.forget()
            try:
                self.tick()
            except (InternalError, OSError) as error:  # a full disk: it may pass
                self._standing.note_trouble(error)
                pause = self._caller.fail()
                log.warning("%s; going on in %.1f s", error, pause)
                self._waking.wait(pause)
            self._waking.wait(min(max(0.0, self._pause()), LOOK_S))

    def stop(self) -> None:
        """End `run` soon; safe from a signal handler."""
        self._waking.stop()

    def close(self) -> None:
        """End every run; what is on the disk goes on at the next start."""
        self.stop()
        self._transfer.close()
        self._executor.close()
        self._pool.shutdown(cancel_futures=True)
        self._standing.leave()
        self._ledger.close()

    def tick(self) -> None:
        """Do once whatever can be done now, without waiting for runs."""
        self._obey()
        self._collect()
        self._start_runs()  # first, so that slots work while results travel
        self._upload_finished()
        if self._caller.is_due(reports=self._has_reports()):
            self._call()
        self._start_runs()
        self._show()

    def _obey(self) -> None:
        before = self._control
        self._control = recall(self._ledger.directory / CONTROL_FILE, Control, before)
        if self._control.updates != before.updates:
            self._caller.insist()
            self._retries.clear()
            self._no_work_before = 0.0
        if self._control.suspended == before.suspended:
            return
        if self._control.suspended:
            self._executor.suspend()
        else:
            self._executor.resume()

    def _show(self) -> None:
        self._standing.write(
            next_call_s=self._caller.due_in(reports=self._has_reports()),
            running=tuple(self._running),
            fractions={
                name: one.fraction_done
                for name, one in self._executor.progress().items()
            },
        )

    def _start_runs(self) -> None:
        for copy in self._ledger.copies():
            if self._control.suspended or len(self._running) >= self._settings.slots:
                return
            idle = copy.result not in self._running
            ready = self._retries.is_ready(copy.result)
            if copy.phase is Phase.ASSIGNED and idle and ready:
                future = self._pool.submit(self._work.run, copy)
                self._running[copy.result] = future
                future.add_done_callback(lambda _: self._waking.wake())

    def _collect(self) -> None:
        for result, future in list(self._running.items()):
            if not future.done():
                # Again and again: a run that was still fetching had nothing to cancel.
                if result in self._unwanted:
                    self._executor.cancel(result)
                continue
            del self._running[result]
            if result in self._unwanted:
                self._abort(result)
                continue
            error = future.exception()
            if error is None:
                self._retries.forget(result)
            elif isinstance(error, StoiloError):
                self._note_trouble(result, error)
            else:
                raise error

    def _note_trouble(self, result: str, error: StoiloError) -> None:
        copy = self._ledger.find(result)
        if copy is None or self._waking.stopping:
            return
        log.warning("%s: %s", result, error)
        self._standing.note_trouble(error)
        # In memory alone: after a restart a program may ask for another time again.
        put_offs = self._put_offs.get(result, 0)
        decision = decide(error, tries=copy.tries, put_offs=put_offs)
        if decision.no_work_s:
            self._no_work_before = time.monotonic() + decision.no_work_s
        match decision.course:
            case Course.FAIL:
                self._ledger.fail(
                    copy, decision.state, decision.exit_status, error.code
                )
                self._caller.hurry()
            case Course.AGAIN:
                self._ledger.save(msgspec.structs.replace(copy, tries=copy.tries + 1))
                self._retries.put_off(result)
            case Course.LATER:
                self._put_offs[result] = put_offs + isinstance(error, PutOffError)
                self._retries.put_off(result, decision.delay_s)

    def _abort(self, result: str) -> None:
        self._unwanted.discard(result)
        copy = self._ledger.find(result)
        if copy is not None and not is_over(copy):
            self._ledger.fail(copy, ResultState.ABORTED, EXIT_ABORTED, "")
            self._caller.hurry()

    def _forget(self, result: str) -> None:
        self._unwanted.discard(result)
        self._retries.forget(result)
        self._put_offs.pop(result, None)
        self._ledger.remove(result)
        self._keep_slots()

    def _keep_slots(self) -> None:
        self._executor.keep({copy.result for copy in self._ledger.copies()})

    def _upload_finished(self) -> None:
        """Send finished results; the project's trouble only puts them off."""
        for copy in self._ledger.copies():
            ready = self._retries.is_ready(copy.result)
            if copy.phase is not Phase.FINISHED or not ready or self._waking.stopping:
                continue
            try:
                self._work.deliver(copy)
            except (UnreachableError, TrustError) as error:
                log.info("%s: %s", copy.result, error)
                self._standing.note_trouble(error)
                self._retries.put_off(copy.result)
            else:
                self._retries.forget(copy.result)
                self._caller.hurry()

    def _has_reports(self) -> bool:
        return any(is_over(copy) for copy in self._ledger.copies())

    def _call(self) -> None:
        try:
            request, reply = self._caller.call(self._request)
        except (UnreachableError, TrustError) as error:
            self._standing.note_trouble(error)
            return
        except DeniedError as error:  # it ends us: `close` writes it down
            self._standing.note_trouble(error)
            raise
        self._standing.note_answer()
        for message in reply.messages:
            log.info("project: %s", show_plainly(" ".join(message.split())))
        self._take_reply(request, reply)
        self._caller.plan(reply, idle=not self._ledger.copies())

    def _request(self, host: HostRecord) -> SchedulerRequest:
        wants = not (self._control.suspended or self._waking.stopping)
        return request_of(
            host,
            self._settings,
            self._ledger.copies(),
            info=replace(
                self._computer, disk_free_bytes=free_bytes(self._ledger.directory)
            ),
            code_sign_key=self._ledger.memory.code_sign_key,
            sticky_files=self._ledger.sticky_files(),
            progress=self._executor.progress(),
            wants_work=wants and time.monotonic() >= self._no_work_before,
            may_wait=wants,
        )

    def _take_reply(self, request: SchedulerRequest, reply: SchedulerReply) -> None:
        """Write down a reply: who we are, what is acknowledged, dropped, assigned."""
        host = self._ledger.host
        if (known := identity_after(host, reply)) != host:
            self._ledger.save_host(known)
        self._take_programs(reply)
        reported = {result.name for result in request.results}
        # Only what was reported in this very call: a reply cannot make us forget other
        # work.
        for name in reply.acks:
            if name in reported:
                self._forget(name)
        for name in reply.aborts:
            if name in self._running:
                self._unwanted.add(name)
                self._executor.cancel(name)
            else:
                self._abort(name)
        for name in reply.aborts_unstarted:
            if not self._has_begun(name):
                self._abort(name)
        for file in reply.files:
            keep_content(file, self._ledger.files / file.name)
        sent = records_of(reply)
        for record in within_room(sent, self._ledger.copies(), self._settings.slots):
            self._ledger.add(record)
        # After the assignments: what a new result needs is kept.
        self._ledger.drop_files(reply.delete_files)
        self._ledger.trim_files(self._settings.cache_bytes)

    def _has_begun(self, result: str) -> bool:
        copy = self._ledger.find(result)
        begun = copy is not None and (copy.phase is not Phase.ASSIGNED or copy.tries)
        return result in self._running or bool(begun)

    def _take_programs(self, reply: SchedulerReply) -> None:
        known = self._ledger.memory
        key, programs = known.code_sign_key, reply.app_versions
        try:
            key = key_after(key, reply)
        except TrustError as error:  # the rest of the reply counts
            programs = ()
            log.warning("%s", error)
            self._standing.note_trouble(error)
        self._ledger.save_memory(memory_after(known, reply, key))
        self._learn_programs(programs)

    def _pause(self) -> float:
        """Return how long nothing will be due, s."""
        now = time.monotonic()
        pauses = [self._caller.due_in(reports=self._has_reports())]
        room = not self._control.suspended and len(self._running) < self._settings.slots
        for copy in self._ledger.copies():
            if copy.result in self._running or is_over(copy):
                continue
            if copy.phase is Phase.FINISHED or room:
                pauses.append(self._retries.at(copy.result) - now)
        return min(*pauses, self._settings.idle_s)
