"""Limits hold for all threads of a run together, and all of them end with it."""

import dataclasses
import threading
import time
from pathlib import Path

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.types import RunStatus
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import encode_probe, run_task
from stoilo.sandbox.process.supervisor import Jail

MIB = 1 << 20
SHARE_MEMORY = """
import threading
taken, parts = [], {parts}
def take():
    try:
        taken.append(bytearray({size}))
    except MemoryError:
        pass
threads = [threading.Thread(target=take) for _ in range(parts)]
for one in threads: one.start()
for one in threads: one.join()
print(len(taken))
"""
SPIN = """
import threading
def spin():
    while True: pass
threads = [threading.Thread(target=spin) for _ in range(3)]
for one in threads: one.start()
for one in threads: one.join()
"""


def test_memory_limit_is_shared_by_all_threads(threads):
    source = SHARE_MEMORY.format(parts=3, size=200 * MIB)
    roomy = threads(source, "threading", threads=4, memory_bytes=1200 * MIB)
    assert roomy.output == "3\n"  # the control
    tight = threads(source, "threading", threads=4, memory_bytes=550 * MIB)
    assert tight.output in {"1\n", "2\n"}


def test_processor_time_is_counted_over_all_threads(threads):
    outcome = threads(SPIN, "threading", threads=4, cpu_s=1)
    assert (outcome.status, outcome.limit) == (RunStatus.KILLED, "cpu_s")


def threads_named(pids):
    """Return how many threads the processes have, those that still exist."""
    found = 0
    for pid in pids:
        try:
            found += len(list(Path(f"/proc/{pid}/task").iterdir()))
        except OSError:
            continue
    return found


def below(pid):
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has just ended
        return set()
    return {int(one) for one in children} | {n for one in children for n in below(one)}


def test_kill_takes_every_thread_of_the_run(threads, wait_until):
    limits = dataclasses.replace(load_level("numeric").default_limits(), threads=4)
    at_rest, exchanges = below(threads.jail.zygote_pid), []
    run = threading.Thread(
        target=threads.jail.run,
        args=(encode_probe(SPIN, ("threading",)), limits),
        kwargs={"watch": exchanges.append},
    )
    run.start()
    (child,) = wait_until(lambda: below(threads.jail.zygote_pid) - at_rest)
    wait_until(lambda: threads_named([child]) >= 4)  # its own, and pools
    exchanges[0].cancel()
    run.join()
    assert threads_named([child]) == 0


PARALLEL = {
    "numeric": """
import numpy as np
def f(kw):
    a = np.ones((600, 600), dtype=np.float32)
    return float((a @ a).sum())
""",
    "tensor": """
import torch
def f(kw):
    layer = torch.nn.Linear(600, 600)
    return float(layer(torch.ones(600, 600)).sin().square().sum()) >= 0
""",
}


@pytest.mark.parametrize("level", ["numeric", pytest.param("tensor", id="torch")])
@pytest.mark.parametrize("count", [1, 2])
def test_libraries_work_with_as_many_threads_as_the_run_may_have(level, count):
    if level == "tensor":
        pytest.importorskip("torch")
    rules = load_level(level)
    limits = dataclasses.replace(rules.default_limits(), threads=count)
    with Jail(rules, TASK_JOB) as jail:
        request = TaskRequest(PARALLEL[level], "f", skeleton.encode({}))
        for _ in range(2):  # a pool that was lost in a fork would hang the second
            begun = time.monotonic()
            outcome = run_task(jail, request, limits, 60.0)
            assert outcome.status is RunStatus.OK, (outcome, time.monotonic() - begun)
