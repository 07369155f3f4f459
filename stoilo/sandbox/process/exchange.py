"""One run as the supervisor sees it: three pipes, a lifeline, its time.

A child that is stopped takes no processor time, and the time that it stands still does not
count towards its wall limit.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import msgspec

from stoilo.core.types import RunLimits
from stoilo.sandbox.kernel.calls import RunningChild
from stoilo.sandbox.process.channel import (
    FRAME_HEADER,
    OUT_OF_MEMORY,
    PROGRESS_FLAG,
    Ended,
    FrameTooLargeError,
    Progress,
    Started,
    StartRun,
    parse_progress,
    receive_lifeline,
    send,
    take_progress,
)
from stoilo.sandbox.process.report import Evidence, JailReport, MemoryKills, judge


class Stopwatch:
    """Counts seconds from `start`, without those between `pause` and `resume`.

    Thread-safe; pausing twice is pausing once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counted = 0.0
        self._since: float | None = None
        self._paused = False

    def start(self) -> None:
        """Begin to count, unless it is paused."""
        with self._lock:
            if not self._paused:
                self._since = self._clock()

    def pause(self) -> None:
        """Stand still; before `start`, wait for `resume` to begin."""
        with self._lock:
            self._counted = self._read()
            self._since, self._paused = None, True

    def resume(self) -> None:
        """Go on after `pause`."""
        with self._lock:
            if self._paused:
                self._since, self._paused = self._clock(), False

    def elapsed_s(self) -> float:
        """Return what it has counted, s."""
        with self._lock:
            return self._read()

    def _read(self) -> float:
        if self._since is None:
            return self._counted
        return self._counted + self._clock() - self._since


GRACE_S = 10.0
"""How long the zygote may take to kill and report, s."""
FIRST_FRAMES, FRAMES_A_SECOND = 16, 8
"""How many frames of progress a run may send at once, and how many more each second."""
_STANDING_S = 1.0  # how often a suspended run is looked at
_CHUNK = 1 << 20
_PIPE_BYTES = 1 << 16  # what a pipe holds before anybody asks for more


def _widen(descriptor: int, wanted: int) -> None:
    # More at once is faster only; a host that refuses it loses nothing.
    if wanted > _PIPE_BYTES:
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _CHUNK)


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
        self._deadline = 0.0  # of a run that is being killed
        self._stopwatch = Stopwatch()
        self._listener: Callable[[Progress], object] | None = None
        self._frames = 0
        self._lock = threading.Lock()  # of what other threads ask for
        self._child: RunningChild | None = None
        self._suspended, self._short_of_memory = False, True
        self._child_exists = self.zygote_silent = self.never_started = False
        self.cancelled = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        for descriptor in tuple(self._open):
            self._close(descriptor)
        self._far_lifeline.close()
        self._lifeline.close()
        with self._lock:
            if self._child is not None:
                self._child.close()

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
        self._stopwatch.start()
        send(control, order, (*theirs, self._far_lifeline.fileno()))
        for descriptor in theirs:
            self._close(descriptor)
        self._far_lifeline.close()

    def finish(
        self, layers: tuple[str, ...], memory_kills: MemoryKills | None = None
    ) -> JailReport:
        """Serve the run until it has ended, and judge it."""
        begun = time.monotonic()
        self._watch()
        while self._ended is None and not self.zygote_silent:
            left = self._time_left_s()
            if left <= 0 and self._hit:
                self.zygote_silent = True
            elif left <= 0:
                self._kill("wall_s")
            else:
                for descriptor, _ in self._poll.poll(left * 1000 + 1):
                    self._serve(descriptor)
        elapsed = self._stopwatch.elapsed_s()
        self._drain()
        killed = self._ended and os.WIFSIGNALED(self._ended.wait_status)
        if memory_kills is not None and killed:
            self._short_of_memory = memory_kills.since(begun)
        return self._judge(elapsed, layers)

    def _time_left_s(self) -> float:
        if self._hit:
            return self._deadline - time.monotonic()
        left = self._wall_s - self._stopwatch.elapsed_s()
        return max(left, _STANDING_S) if self._suspended else left

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
                short_of_memory=self._short_of_memory,
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
        with suppress(KeyError):
            self._poll.unregister(descriptor)
        self._close(descriptor)

    def _feed(self) -> None:
        try:
            while self._request:
                self._request = self._request[os.write(self._to_child, self._request) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            pass  # the child did not read it; its ending says why
        self._unregister(self._to_child)

    def _read(self, descriptor: int, into: bytearray, most: int) -> bool:
        """Append what is there, never keeping more than `most` bytes plus one."""
        try:
            data = os.read(descriptor, min(_CHUNK, most + 1 - len(into)))
        except BlockingIOError:
            return False
        into += data
        if not data:
            self._unregister(descriptor)
        return bool(data)

    def _read_output(self) -> bool:
        more = self._read(self._from_output, self._output, self._limits.output_bytes)
        if len(self._output) > self._limits.output_bytes:
            self._unregister(self._from_output)
            self._kill("output_bytes")
        return more

    def _read_result(self) -> bool:
        most = FRAME_HEADER + self._limits.result_bytes
        more = self._read(self._from_result, self._result, most)
        if not self._hear_progress() or self._is_result_too_large():
            self._unregister(self._from_result)
            self._kill("result_bytes")
        return more

    def _is_result_too_large(self) -> bool:
        """Whether what was read, progress aside, is more than the result may take."""
        length = int.from_bytes(self._result[:FRAME_HEADER], "big")
        whole = len(self._result) >= FRAME_HEADER and not length & PROGRESS_FLAG
        if self._result == OUT_OF_MEMORY:
            return False
        most = self._limits.result_bytes
        return len(self._result) > FRAME_HEADER + most or (whole and length > most)

    def _hear_progress(self) -> bool:
        # Hand over what tells of progress; False for too large or too many frames
        most = None if self._listener is None else self._limits.result_bytes
        try:
            while (frame := take_progress(self._result, most)) is not None:
                self._frames += 1
                progress = parse_progress(frame)
                if self._listener is not None and progress is not None:
                    self._listener(progress)
        except FrameTooLargeError:
            return False
        allowed = FIRST_FRAMES + FRAMES_A_SECOND * self._stopwatch.elapsed_s()
        return self._frames <= allowed

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

    def hear(self, listener: Callable[[Progress], object]) -> None:
        """Have `listener` get what the run tells of itself (hostile), in its own thread.

        To be called before the run begins; without it a run that tells is killed.
        """
        self._listener = listener

    def suspend(self) -> None:
        """Let the child stand still, from any thread; its wall time stands still too."""
        with self._lock:
            self._suspended = True
            self._stopwatch.pause()
            if self._child is not None:
                self._child.stop()

    def resume(self) -> None:
        """Let the child go on, from any thread."""
        with self._lock:
            self._suspended = False
            self._stopwatch.resume()
            if self._child is not None:
                self._child.resume()

    def elapsed_s(self) -> float:
        """Return how long the run has lasted, s, without the time it stood still."""
        return self._stopwatch.elapsed_s()

    def cpu_s(self) -> float:
        """Return the child's processor time so far, s."""
        with self._lock:
            if self._ended is not None:
                return self._ended.cpu_s
            return self._child.cpu_s() if self._child is not None else 0.0

    def group_cpu_s(self) -> float:
        """Return the processor time of child and zygote so far, s."""
        with self._lock:
            zygote = self._child.zygote_cpu_s() if self._child is not None else 0.0
        return self.cpu_s() + zygote

    def child_pid(self) -> int:
        """Return the child's pid as this process sees it, 0 while there is none."""
        with self._lock:
            return self._child.pid if self._child is not None else 0

    def _end_lifeline(self) -> None:
        # The zygote sees the end of the lifeline and kills the child.
        with suppress(OSError):  # it has ended
            self._lifeline.shutdown(socket.SHUT_WR)

    def _read_lifeline(self) -> None:
        try:
            message, descriptors = receive_lifeline(self._lifeline)
        except (OSError, msgspec.MsgspecError):
            message, descriptors = None, []
        self._take_child(descriptors)
        match message:
            case Started():
                self._child_exists = True
            case Ended():
                self._ended = message
            case None:
                self.zygote_silent = True
                self.never_started = not self._child_exists

    def _take_child(self, descriptors: list[int]) -> None:
        # Take the child's pidfd; it stops at once where that was asked for before
        with self._lock:
            for descriptor in descriptors:
                if self._child is not None:
                    self._child.close()
                self._child = RunningChild(descriptor)
            if descriptors and self._child is not None and self._suspended:
                self._child.stop()

    def _drain(self) -> None:
        # Read what the dead child left in the pipes, within the bounds
        for descriptor, read in (
            (self._from_output, self._read_output),
            (self._from_result, self._read_result),
        ):
            while descriptor in self._open and read():
                pass
