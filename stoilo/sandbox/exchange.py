"""One run as the supervisor sees it: three pipes and a lifeline, polled until the end."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import time
from types import TracebackType
from typing import Self

import msgspec

from stoilo.core.limits import RunLimits
from stoilo.sandbox.channel import (
    FRAME_HEADER,
    Ended,
    Started,
    StartRun,
    receive_lifeline,
    send,
)
from stoilo.sandbox.report import Evidence, JailReport, judge

__all__ = ["Exchange"]

GRACE_S = 10.0
"""How long the zygote may take to kill and report, s."""
_CHUNK = 1 << 20
_PIPE_BYTES = 1 << 16  # what a pipe holds before anybody asks for more


def _widen(descriptor: int, wanted: int) -> None:
    """Let a pipe hold up to 1 MiB when much is to come; refusal is harmless."""
    if wanted > _PIPE_BYTES:
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _CHUNK)
        except OSError:
            pass


class Exchange:
    """The descriptors of one run and the poll loop over them.

    Args:
        request: untrusted bytes for the child.
        limits: what the child may use.
        wall_s: elapsed time after which it is killed, s.
    """

    def __init__(self, request: bytes, limits: RunLimits, wall_s: float) -> None:
        self._limits = limits
        self._wall_s = wall_s
        self._request = memoryview(request)
        self._output = bytearray()
        self._result = bytearray()
        self._hit = ""
        self._ended: Ended | None = None
        self._open: set[int] = set()
        self._child_request, self._to_child = self._pipe()
        self._from_output, self._child_output = self._pipe()
        self._from_result, self._child_result = self._pipe()
        self._lifeline, self._far_lifeline = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        self._poll = select.poll()
        self._started = self._deadline = 0.0
        self._child_exists = self.zygote_silent = self.never_started = False
        self.cancelled = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for descriptor in tuple(self._open):
            self._close(descriptor)
        self._far_lifeline.close()
        self._lifeline.close()

    def _pipe(self) -> tuple[int, int]:
        pair = os.pipe2(os.O_CLOEXEC)
        self._open.update(pair)
        return pair

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.discard(descriptor)
            os.close(descriptor)

    def begin(self, control: socket.socket) -> None:
        """Send the order with the child's ends; raises OSError when the zygote is dead."""
        theirs = (self._child_request, self._child_output, self._child_result)
        order = StartRun(
            request_bytes=len(self._request),
            cpu_s=self._limits.cpu_s,
            memory_bytes=self._limits.memory_bytes,
            threads=self._limits.threads,
        )
        self._started = time.monotonic()
        send(control, order, (*theirs, self._far_lifeline.fileno()))
        for descriptor in theirs:
            self._close(descriptor)
        self._far_lifeline.close()

    def finish(self, layers: tuple[str, ...]) -> JailReport:
        """Serve the run until it has ended, and judge it."""
        self._watch()
        self._deadline = self._started + self._wall_s
        while self._ended is None and not self.zygote_silent:
            left = self._deadline - time.monotonic()
            if left <= 0 and self._hit:
                self.zygote_silent = True
            elif left <= 0:
                self._kill("wall_s")
            else:
                for descriptor, _ in self._poll.poll(left * 1000 + 1):
                    self._serve(descriptor)
        elapsed = time.monotonic() - self._started
        self._drain()
        return self._judge(elapsed, layers)

    def give_up(self) -> JailReport:
        """Return the report of a run that was cancelled before it began."""
        return self._judge(0.0, ())

    def _judge(self, elapsed: float, layers: tuple[str, ...]) -> JailReport:
        return judge(
            Evidence(
                ended=self._ended,
                hit=self._hit,
                result=bytes(self._result),
                output=bytes(self._output[: self._limits.output_bytes]),
                limits=self._limits,
                wall_s=elapsed,
                layers=layers,
                cancelled=self.cancelled,
            )
        )

    def _watch(self) -> None:
        for descriptor in (self._to_child, self._from_output, self._from_result):
            os.set_blocking(descriptor, False)
        _widen(self._to_child, len(self._request))
        _widen(self._from_result, self._limits.result_bytes)
        self._poll.register(self._from_output, select.POLLIN)
        self._poll.register(self._from_result, select.POLLIN)
        self._poll.register(self._lifeline, select.POLLIN)
        self._feed()
        if self._to_child in self._open:
            self._poll.register(self._to_child, select.POLLOUT)

    def _serve(self, descriptor: int) -> None:
        if descriptor == self._to_child:
            self._feed()
        elif descriptor == self._from_output:
            self._read_output()
        elif descriptor == self._from_result:
            self._read_result()
        else:
            self._read_lifeline()

    def _unregister(self, descriptor: int) -> None:
        try:
            self._poll.unregister(descriptor)
        except KeyError:
            pass
        self._close(descriptor)

    def _feed(self) -> None:
        """Write as much of the request as the pipe takes."""
        try:
            while self._request:
                self._request = self._request[os.write(self._to_child, self._request) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            pass  # the child did not read it; its ending says why
        self._unregister(self._to_child)

    def _read(self, descriptor: int, into: bytearray, most: int) -> None:
        """Append what is there, never keeping more than `most` bytes plus one."""
        try:
            data = os.read(descriptor, min(_CHUNK, most + 1 - len(into)))
        except BlockingIOError:
            return
        into += data
        if not data:
            self._unregister(descriptor)

    def _read_output(self) -> None:
        self._read(self._from_output, self._output, self._limits.output_bytes)
        if len(self._output) > self._limits.output_bytes:
            self._unregister(self._from_output)
            self._kill("output_bytes")

    def _read_result(self) -> None:
        most = FRAME_HEADER + self._limits.result_bytes
        self._read(self._from_result, self._result, most)
        announced = int.from_bytes(self._result[:FRAME_HEADER], "big")
        whole = len(self._result) >= FRAME_HEADER
        if len(self._result) > most or (
            whole and announced > self._limits.result_bytes
        ):
            self._unregister(self._from_result)
            self._kill("result_bytes")

    def _kill(self, limit: str) -> None:
        """Ask the zygote to kill the child; the first reason is the reason.

        A zygote that has not reported `GRACE_S` later counts as silent.
        """
        if not self._hit:
            self._hit = limit
            self._deadline = time.monotonic() + GRACE_S
            self._end_lifeline()

    def cancel(self) -> None:
        """Have the child killed, from any thread; harmless before and after the run."""
        self.cancelled = True
        self._end_lifeline()

    def _end_lifeline(self) -> None:
        """Let the zygote see the end of the lifeline; it kills the child then."""
        try:
            self._lifeline.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has ended

    def _read_lifeline(self) -> None:
        try:
            message = receive_lifeline(self._lifeline)
        except (OSError, msgspec.MsgspecError):
            message = None
        match message:
            case Started():
                self._child_exists = True
            case Ended():
                self._ended = message
            case None:
                self.zygote_silent = True
                self.never_started = not self._child_exists

    def _drain(self) -> None:
        """Read what the dead child left in the pipes, within the bounds."""
        for descriptor, read in (
            (self._from_output, self._read_output),
            (self._from_result, self._read_result),
        ):
            while descriptor in self._open:
                before = len(self._output) + len(self._result)
                read()
                if len(self._output) + len(self._result) == before:
                    break
