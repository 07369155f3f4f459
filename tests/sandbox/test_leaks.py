"""A thousand runs of one zygote leave no descriptor, process or memory behind."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from stoilo.core.codec import skeleton
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.supervisor import Jail, zygote_command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
RUNS, WARM_UP = 1000, 100
BOUND = 1 << 20
"""Bytes that a zygote's own memory may differ by; one leaked byte a run is far below, one
leaked object or message (hundreds of bytes) is above a tenth of it."""
TASKS = {
    "pure": (
        "def f(kw):\n    return sum(range(kw['n']))\n",
        "def f(kw):\n    print('x' * kw['n'])\n    return [1] * kw['n']\n",
        "def f(kw):\n    raise ValueError('x' * kw['n'])\n",
        "def f(kw):\n    return bytearray(1 << 40)\n",
    ),
    "numeric": (
        "import numpy as np\ndef f(kw):\n    return np.ones(kw['n']).sum()\n",
        "import numpy as np\ndef f(kw):\n    a = np.eye(40)\n    return (a @ a)[0, 0]\n",
        "import numpy as np\ndef f(kw):\n    return np.linalg.inv(np.zeros((2, 2)))\n",
    ),
    "tensor": (
        "import torch\ndef f(kw):\n    return torch.ones(kw['n']).sum().item()\n",
        "import torch\ndef f(kw):\n    return torch.nn.Linear(9, 9)(torch.ones(9))\n",
    ),
}


def below(pid):
    """Return every process below `pid`."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # a run's child that has just ended
        return set()
    return {int(one) for one in children} | {n for one in children for n in below(one)}


def count_descriptors(pids):
    """Count them; at rest every process is there, before that a child may just go."""
    found = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            found += len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return found


def private_bytes(pids):
    """Return what the processes hold alone; what they share with forks is not theirs."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Private_Dirty:", "Swap:")):
                total += int(line.split()[1]) * 1024
    return total


@pytest.mark.skipif(os.geteuid() != 0, reason="reads the zygote's descriptors")
@pytest.mark.parametrize("level", list(TASKS))
def test_a_thousand_runs_leave_nothing_behind(level, wait_until):
    if level == "tensor":
        pytest.importorskip("torch")
    rules = load_level(level)
    requests = [
        TaskRequest(source, "f", skeleton.encode({"n": 1000})).encode()
        for source in TASKS[level]
    ]
    with Jail(rules, TASK_JOB) as jail:
        run_all(jail, requests, WARM_UP, rules.default_limits())
        zygotes = {jail.zygote_pid, *below(jail.zygote_pid)}
        processes = {os.getpid(), *zygotes}
        before, memory = count_descriptors(processes), private_bytes(zygotes)
        run_all(jail, requests, RUNS, rules.default_limits())
        # The zygote closes a run's lifeline after its report.
        wait_until(lambda: count_descriptors(processes) <= before)
        wait_until(lambda: {jail.zygote_pid, *below(jail.zygote_pid)} == zygotes)
        assert private_bytes(zygotes) - memory < BOUND


def run_all(jail, requests, runs, limits):
    for number in range(runs):
        jail.run(requests[number % len(requests)], limits)


LEAKING = """
import os
from stoilo.sandbox.kernel import mechanisms
read, kept = mechanisms.read_address_space, []
def leak(statm):
    kept.append((os.pidfd_open(os.getpid()), bytearray(1 << 16)))
    return read(statm)
mechanisms.read_address_space = leak
from stoilo.sandbox"""


def test_the_check_sees_a_zygote_that_leaks():
    """The control: one descriptor and 64 KiB a run, more than a heap has room for."""
    *interpreter, entry = zygote_command()
    entry = entry.replace("from stoilo.sandbox", LEAKING, 1)
    rules, runs = load_level("pure"), 200
    requests = [TaskRequest(TASKS["pure"][0], "f", skeleton.encode({"n": 9})).encode()]
    with Jail(rules, TASK_JOB, command=lambda: [*interpreter, entry]) as jail:
        run_all(jail, requests, 5, rules.default_limits())
        zygotes = {jail.zygote_pid, *below(jail.zygote_pid)}
        before, memory = count_descriptors(zygotes), private_bytes(zygotes)
        run_all(jail, requests, runs, rules.default_limits())
        # Half of them is far above what a run that just ended may still hold.
        assert count_descriptors(zygotes) >= before + runs // 2
        assert private_bytes(zygotes) - memory > BOUND
