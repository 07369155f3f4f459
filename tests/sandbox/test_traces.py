"""What tasks really call inside the jail, by strace, for every benign program of a level.

A warm zygote must leave nothing to be loaded: no file is opened or looked for, no socket
made, no call denied. strace reports attempts that the filter answers politely as well.
"""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.types import RunStatus
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail, zygote_command

STRACE = shutil.which("strace")
CASES = Path(__file__).parents[1] / "attack" / "cases"
FOLDERS = {
    "pure": ("benign",),
    "numeric": ("benign", "benign_numeric"),
    "tensor": ("benign_tensor",),
}
EXPECTED = frozenset(
    [
        "read",
        "write",
        "close",
        "mmap",
        "munmap",
        "mremap",
        "brk",
        "madvise",
        "futex",
        "sendmsg",
        "exit",
        "exit_group",
    ]
) | {"lseek", "clock_gettime", "rt_sigaction", "rt_sigprocmask", "mprotect"}
"""What a warm run needs; lseek is CPython's question about the output it writes to."""
LOADING = """
def run(kwargs):
    return "x".encode("cp437").hex()
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(STRACE is None, reason="needs strace"),
    pytest.mark.timeout(600),
]


def read_sources(level):
    """Return the programs of a level by name; those of another form are left out."""
    found = {
        f"{folder}/{path.stem}": path.read_text()
        for folder in FOLDERS[level]
        for path in sorted((CASES / folder).glob("*.py"))
    }
    return {name: text for name, text in found.items() if "\n# run = " not in text}


def calls_after_sealing(trace):
    """Return, for each child in order, the calls after its filter was loaded."""
    sealed = {}
    for line in trace.read_text(errors="replace").splitlines():
        pid, _, call = line.partition(" ")
        if "SECCOMP_FILTER_FLAG_NEW_LISTENER" in call:
            sealed[pid] = []
        elif pid in sealed and (name := re.match(r"\s*([a-z0-9_]+)\(", call)):
            sealed[pid].append(name[1])
    return list(sealed.values())


def run_traced(level, sources, trace):
    """Run each program once in one traced jail; returns outcomes by name, and calls."""
    rules = load_level(level)
    limits = dataclasses.replace(rules.default_limits(), wall_s=120)
    command = [STRACE, "-Df", "-o", str(trace), *zygote_command()]
    outcomes = {}
    with Jail(rules, TASK_JOB, command=lambda: command) as jail:
        for name, source in sources.items():
            arguments = skeleton.encode({"parts": 3, "n": 3})
            request = TaskRequest(source, "run", arguments)
            outcomes[name] = run_task(jail, request, limits)
    return outcomes, dict(zip(sources, calls_after_sealing(trace), strict=True))


@pytest.mark.parametrize("level", list(FOLDERS))
def test_benign_programs_call_nothing_that_loads(level, tmp_path):
    if level == "tensor":
        pytest.importorskip("torch")
    outcomes, calls = run_traced(level, read_sources(level), tmp_path / "trace")
    failed = {n: o.error for n, o in outcomes.items() if o.status is not RunStatus.OK}
    assert failed == {}
    odd = {name: sorted(set(made) - EXPECTED) for name, made in calls.items()}
    assert {name: names for name, names in odd.items() if names} == {}


def test_trace_shows_a_program_that_tries_to_load(tmp_path):
    """The control: a codec that was not preloaded is looked for in files."""
    _, calls = run_traced("pure", {"late": LOADING}, tmp_path / "trace")
    assert set(calls["late"]) & {"newfstatat", "openat", "stat"}
