"""The check at the end of each session sees what it is for."""

import os
import signal
import subprocess
import sys

ORPHAN = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
away = {"stdout": -3, "stderr": -3, "start_new_session": True}  # -3: DEVNULL
print(subprocess.Popen(sleep, **away).pid)
"""


def test_child_of_the_session_is_seen_while_it_runs(find_survivors):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as child:
        assert child.pid in find_survivors(0)
        child.communicate(b"\n")
    assert child.pid not in find_survivors(0)


def test_orphan_in_a_session_of_its_own_is_seen(find_survivors, wait_until):
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN], capture_output=True, check=True
    )
    pid = int(done.stdout)
    try:
        assert pid in find_survivors(0)
    finally:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pid not in find_survivors(0))
