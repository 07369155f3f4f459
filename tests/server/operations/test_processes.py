from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from stoilo.server.operations.processes import ChildSpec, SupervisedChild
from tests.support.server import ManualClock

# A module of the standard library that waits for ever, silently.
WAITING = ("http.server", ("--bind", "127.0.0.1", "0"))


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def make_child(tmp_path: Path, clock: ManualClock) -> SupervisedChild:
    spec = ChildSpec("waiter", *WAITING, tmp_path / "child.log")
    return SupervisedChild(spec, dict(os.environ), clock)


def test_killed_child_is_started_again_after_a_pause(tmp_path: Path) -> None:
    clock = ManualClock(0)
    child = make_child(tmp_path, clock)
    child.start()
    first = child.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: child.pid is None)
    assert not child.check()
    clock.now += 60
    assert child.check()
    assert child.pid != first
    assert child.restarts == 1
    child.stop()
    assert child.pid is None


def test_child_dies_with_its_parent(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    program = f"""
import os, pathlib, time
from stoilo.server.operations.processes import ChildSpec, SupervisedChild
spec = ChildSpec("waiter", {WAITING[0]!r}, {WAITING[1]!r}, pathlib.Path({log!r}))
child = SupervisedChild(spec, dict(os.environ))
child.start()
print(child.pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    wait_for(lambda: Path(f"/proc/{pid}/cmdline").read_bytes().find(b"http") >= 0)
    time.sleep(0.2)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
