"""Inside the jail nothing is opened and no module loaded, seen from outside by strace."""

import shutil
import sys

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.types import RunStatus
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import PROBE_JOB, TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import encode_probe, run_task
from stoilo.sandbox.process.supervisor import Jail, zygote_command

STRACE = shutil.which("strace")
pytestmark = pytest.mark.skipif(STRACE is None, reason="needs strace")


@pytest.mark.parametrize("level", ["pure", "numeric"])
def test_nothing_is_opened_and_sys_modules_does_not_grow_in_the_jail(
    request, level, tmp_path
):
    trace = tmp_path / "trace"
    preload = ("math", "json") if level == "pure" else ("numpy", "numpy.random")
    source = f"import sys\nbefore = set(sys.modules)\nimport {preload[0]} as module\n"
    source += {
        "pure": "module.sqrt(2.0)\n",
        "numeric": "a = module.ones((20, 20)); (a @ a).sum(); module.linalg.inv(a + "
        "module.eye(20)); module.random.Generator(module.random.PCG64(1)).normal()\n",
    }[level]
    source += "print(sorted(set(sys.modules) - before))"

    def traced():
        return [
            STRACE,
            "-Df",
            "-o",
            str(trace),
            sys.executable,
            *["-s", "-P", "-m", "stoilo.sandbox.process.zygote"],
        ]

    rules = request.getfixturevalue(level)
    with Jail(rules, PROBE_JOB, preload=preload, command=traced) as jail:
        report = jail.run(encode_probe(source, preload), rules.default_limits())
        control = jail.run(
            encode_probe("try:\n open('/etc/hosts')\nexcept OSError: pass"),
            rules.default_limits(),
        )
    assert (report.output, report.status.value) == (b"[]\n", "finished"), report
    assert control.status.value == "finished"
    first, second = calls_in_the_jail(trace)
    opens = [c for c in first if c.startswith(("open", "stat", "newfstatat", "access"))]
    assert opens == []
    # The control. strace shows the path only to root: the child is not dumpable.
    assert any(call.startswith("open") for call in second)


TASKS = {
    "pure": """
import dataclasses, json, random, re, statistics

@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0

def f(kw):
    p = Point(random.random())
    print(f"{p.x > 0}")
    return [statistics.mean([1, 2]), json.dumps({"a": 1}), bool(re.match("a+", "aa"))]
""",
    "numeric": """
import numpy as np

def f(kw):
    a = np.eye(20) + np.ones((20, 20))
    b = np.linalg.solve(a, np.fft.fft(np.arange(20.0)).real)
    return [b.sum(), np.median(b), np.sort(b), np.einsum("ij,j->i", a, b)]
""",
}


@pytest.mark.parametrize("level", ["pure", "numeric"])
def test_task_opens_no_file_in_the_jail(level, tmp_path):
    trace = tmp_path / "trace"

    def traced():
        return [STRACE, "-Df", "-o", str(trace), *zygote_command()]

    rules = load_level(level)
    with Jail(rules, TASK_JOB, command=traced) as jail:
        request = TaskRequest(TASKS[level], "f", skeleton.encode({}))
        outcome = run_task(jail, request, rules.default_limits())
    assert outcome.status is RunStatus.OK, outcome
    calls = calls_in_the_jail(trace)[0]
    allowed = ("read", "write", "mmap", "munmap", "mremap", "brk", "madvise", "close")
    allowed += ("sendmsg", "exit_group", "+++", "lseek", "clock_", "rt_sig", "futex")
    assert [call for call in calls if not call.startswith(allowed)] == []


def calls_in_the_jail(trace):
    """Return, for each child in order, what it called after its filter was loaded."""
    sealed = {}
    for line in trace.read_text(errors="replace").splitlines():
        pid, _, call = line.partition(" ")
        if "SECCOMP_FILTER_FLAG_NEW_LISTENER" in call:
            sealed[pid] = []
        elif pid in sealed and not call.lstrip().startswith("<... "):
            # (the end of a call whose beginning has its own line, another pid's between)
            sealed[pid].append(call.strip())
    return list(sealed.values())
