"""One thread or several in a run: what each choice costs (docs/adr/0013).

One thread costs time where the processor has more to give. Several cost equal bits: sums
are cut elsewhere, so honest hosts with different limits would disagree.
"""

from __future__ import annotations

import dataclasses
import os
import statistics

from bench.rows import Row
from stoilo.core.codec import skeleton
from stoilo.core.types import RunOutcome
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail

PROGRAMS = {
    "numeric": """
import numpy as np

def run(kwargs):
    random = np.random.default_rng(1)
    a = random.standard_normal((900, 900)).astype(np.float32)
    for _ in range(12):
        a = a @ a
        a /= np.abs(a).max()
    return a.tobytes()[:65536]
""",
    "tensor": """
import torch

def run(kwargs):
    torch.manual_seed(1)
    convolution = torch.nn.Conv2d(3, 32, 3)
    images = torch.randn(16, 3, 96, 96)
    for _ in range(4):
        loss = convolution(images).sin().square().mean()
        loss.backward()
    product = torch.randn(700, 700)
    for _ in range(12):
        product = product @ product
        product = product / product.abs().max()
    return [convolution.weight.grad.numpy().tobytes(), product.sum().item()]
""",
}
SEVERAL = min(4, os.cpu_count() or 1)


def _run(jail: Jail, level: str, threads: int) -> RunOutcome:
    limits = dataclasses.replace(load_level(level).default_limits(), threads=threads)
    request = TaskRequest(PROGRAMS[level], "run", skeleton.encode({}))
    outcome = run_task(jail, request, limits)
    assert outcome.status == "ok", outcome
    return outcome


def _measure_level(level: str, runs: int) -> list[Row]:
    with Jail(load_level(level), TASK_JOB) as jail:
        pairs = [
            (_run(jail, level, 1), _run(jail, level, SEVERAL)) for _ in range(runs)
        ]
    one, several = (
        statistics.median(outcome.usage.wall_s * 1000 for outcome in outcomes)
        for outcomes in zip(*pairs, strict=True)
    )
    busy_one, busy_several = (
        statistics.median(outcome.usage.cpu_s * 1000 for outcome in outcomes)
        for outcomes in zip(*pairs, strict=True)
    )
    singles, teams = (
        {outcome.value for outcome in side} for side in zip(*pairs, strict=True)
    )
    name = f"{level}, one thread"
    peer = f"{SEVERAL} threads"
    return [
        Row(f"{name}: time", one, "ms", peer, several, one / several, "of the time"),
        Row(
            f"{name}: processor time",
            busy_one,
            "ms",
            peer,
            busy_several,
            busy_one / busy_several,
            "of the processor time",
        ),
        Row(f"{level}: different answers, one thread", float(len(singles)), "of runs"),
        Row(f"{level}: different answers, {peer}", float(len(teams)), "of runs"),
        Row(
            f"{level}: different answers, both", float(len(singles | teams)), "of runs"
        ),
    ]


def measure(runs: int = 5) -> list[Row]:
    """Return both costs for each level that may have several threads."""
    return [row for level in PROGRAMS for row in _measure_level(level, runs)]
