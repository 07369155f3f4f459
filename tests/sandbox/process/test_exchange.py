"""A suspended run stands still, loses no wall time, and still dies when it must."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stoilo.core.types import RunLimits
from stoilo.sandbox.kernel.calls import RunningChild, read_proc
from stoilo.sandbox.process.channel import PROBE_JOB
from stoilo.sandbox.process.exchange import Stopwatch
from stoilo.sandbox.process.report import JailStatus, MemoryKills
from stoilo.sandbox.process.run import encode_probe
from stoilo.sandbox.process.supervisor import Jail

LIMITS = RunLimits(cpu_s=30, wall_s=60)
# Long enough to be stopped before it ends, however late the signal comes.
WORK = "for _ in range(10_000_000):\n    pass\nprint('done')"
SPIN = "while True: pass"


def state_of(pid):
    """Return the letter of a process's state, X when it has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except OSError:
        return "X"


@pytest.fixture(scope="module")
def jail(pure):
    with Jail(pure, PROBE_JOB, preload=("time",)) as made:
        yield made


class Running:
    """A run in a thread of its own; ends with the block."""

    def __init__(self, jail, source, *, wall_s=60.0, before=lambda _: None):
        self.report = None
        self.exchange = None
        self._begun = threading.Event()

        def watch(exchange):
            self.exchange = exchange
            before(exchange)
            self._begun.set()

        def run():
            request = encode_probe(source)
            self.report = jail.run(request, LIMITS, wall_s, watch=watch)

        self._thread = threading.Thread(target=run)

    def __enter__(self):
        self._thread.start()
        assert self._begun.wait(60)
        return self

    def __exit__(self, *exc_info):
        self.exchange.cancel()
        self._thread.join()

    def join(self):
        self._thread.join(60)
        return self.report

    @property
    def state(self):
        return state_of(self.exchange.child_pid() or -1)


def test_suspended_child_stands_still_and_goes_on(jail, wait_until):
    with Running(jail, SPIN) as run:
        wait_until(lambda: run.exchange.cpu_s() > 0)
        run.exchange.suspend()
        wait_until(lambda: run.state == "T")
        stood = run.exchange.cpu_s()
        assert run.exchange.cpu_s() == stood
        run.exchange.resume()
        wait_until(lambda: run.exchange.cpu_s() > stood)


def test_suspended_before_it_begins_it_does_not_run(jail, wait_until):
    with Running(jail, SPIN, before=lambda exchange: exchange.suspend()) as run:
        wait_until(lambda: run.state == "T")
        assert run.exchange.elapsed_s() == 0
        run.exchange.resume()
        wait_until(lambda: run.exchange.elapsed_s() > 0 and run.state == "R")


def test_wall_time_does_not_run_while_suspended(jail, wait_until):
    now = [0.0]

    def suspend(exchange):
        exchange._stopwatch = Stopwatch(lambda: now[0])
        exchange.suspend()

    with Running(jail, WORK, wall_s=50.0, before=suspend) as run:
        wait_until(lambda: run.state == "T")
        now[0] = 1000.0
        run.exchange.resume()
        report = run.join()
    assert (report.status, report.output) == (JailStatus.FINISHED, b"done\n")


def test_wall_limit_holds_again_after_resuming(jail, wait_until):
    with Running(jail, SPIN, wall_s=0.5, before=lambda one: one.suspend()) as run:
        wait_until(lambda: run.state == "T")
        run.exchange.resume()
        assert run.join().limit == "wall_s"


def test_cancelled_while_suspended_it_dies(jail, wait_until):
    with Running(jail, SPIN) as run:
        pid = wait_until(run.exchange.child_pid)
        run.exchange.suspend()
        wait_until(lambda: state_of(pid) == "T")
        run.exchange.cancel()
        assert run.join().code == "STO-S008"
    assert state_of(pid) in "XZ"


def test_time_of_an_ended_run_stays(jail):
    with Running(jail, "sum(range(10**6))") as run:
        report = run.join()
    assert run.exchange.cpu_s() == report.usage.cpu_s > 0
    assert run.exchange.child_pid() == 0
    run.exchange.suspend()  # nothing to suspend any more
    run.exchange.resume()


def test_child_is_found_by_its_pidfd(pure):
    del pure
    child = RunningChild(os.pidfd_open(os.getpid()))
    assert child.pid == os.getpid()
    assert 0 < child.cpu_s() <= time.process_time() + 1
    child.close()
    child.close()
    child.stop()  # of nobody


def test_stopwatch_counts_what_is_not_paused():
    now = [10.0]
    watch = Stopwatch(lambda: now[0])
    assert watch.elapsed_s() == 0
    watch.start()
    now[0] = 13.0
    watch.pause()
    now[0] = 20.0
    watch.pause()
    assert watch.elapsed_s() == 3
    watch.resume()
    now[0] = 21.0
    watch.resume()
    assert watch.elapsed_s() == 4


def test_stopwatch_paused_before_it_starts_waits():
    now = [0.0]
    watch = Stopwatch(lambda: now[0])
    watch.pause()
    watch.start()
    now[0] = 5.0
    assert watch.elapsed_s() == 0
    watch.resume()
    now[0] = 6.0
    assert watch.elapsed_s() == 1


def test_child_that_ended_before_it_was_looked_at_has_no_parent():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    descriptor = os.pidfd_open(ended.pid)
    ended.wait()
    child = RunningChild(descriptor)
    assert (child.cpu_s(), child.zygote_cpu_s()) == (0.0, 0.0)
    child.close()


def test_child_that_ends_while_it_is_looked_at_has_no_parent():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    with open(f"/proc/{ended.pid}/stat", "rb", buffering=0) as stat:  # noqa: PTH123 - opened before its end
        ended.wait()
        with pytest.raises(ProcessLookupError):  # the control: the kernel says so here
            stat.read(1)
        assert read_proc(f"/proc/self/fd/{stat.fileno()}") == b""


class Kernel:
    """Counts kills for want of memory; `None` where it does not tell."""

    def __init__(self, kills=0):
        self.kills, self.now = kills, 0.0
        self.watch = MemoryKills(lambda: self.kills, lambda: self.now)


def test_kill_for_want_of_memory_is_seen_by_all_who_ran_then():
    kernel = Kernel()
    kernel.now, kernel.kills = 5.0, 1
    assert [kernel.watch.since(begun) for begun in (1.0, 5.0, 1.0)] == [True] * 3
    assert kernel.watch.since(6.0) is False


def test_control_quiet_kernel_killed_nobody():
    kernel = Kernel(7)
    kernel.now = 9.0
    assert kernel.watch.since(1.0) is False


def test_kernel_that_does_not_tell_may_have():
    kernel = Kernel(None)
    kernel.now = 9.0
    assert kernel.watch.since(1.0) is True


def test_this_kernel_tells():
    assert MemoryKills().since(time.monotonic()) is False
