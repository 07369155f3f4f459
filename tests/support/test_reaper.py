"""What a command leaves behind comes to its reaper, which ends as the command does."""

import signal
import subprocess
import sys

import pytest

from tests.support import reaper
from tests.support.descendants import alive, descendants

COMMAND = [sys.executable, "-I", str(reaper.__file__), "-c"]
ORPHAN = """
import os, subprocess, sys, time
make = "import subprocess; print(subprocess.Popen(['sleep', '60'], stdout=-3).pid)"
pid = int(subprocess.check_output([sys.executable, "-c", make]))
parent = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
print(parent == os.getppid(), flush=True)
os.kill(pid, 9)
"""
GONE = (
    'while os.path.exists(f"/proc/{pid}"): time.sleep(0.01)'  # a zombie is still there
)
NESTED = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ORPHAN!r}])"


def run(*words):
    return subprocess.run(words, capture_output=True, check=False, timeout=60)


def test_orphan_becomes_the_reapers_child_and_no_zombie():
    assert run(*COMMAND, ORPHAN + GONE).stdout == b"True\n"


def test_orphan_goes_further_up_without_a_reaper():
    assert run(sys.executable, "-c", NESTED).stdout == b"False\n"


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("pass", 0),
        ("raise SystemExit(5)", 5),
        ("import os; os.kill(os.getpid(), 15)", 143),
    ],
)
def test_it_ends_as_its_command_does(program, status):
    assert run(*COMMAND, program).returncode == status


def test_command_dies_with_it(wait_until):
    words = [*COMMAND, "print(flush=True); input()"]
    with subprocess.Popen(words, stdin=-1, stdout=-1) as process:
        process.stdout.readline()
        command = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: not alive(command))
    assert len(command) == 1
