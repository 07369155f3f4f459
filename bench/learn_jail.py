"""Trainers through the real jail: gate, log, signatures, three volunteers of this machine.

*Time to accuracy*: every method of `fit` on the digits, from its first task to the answer
that brings the held-out accuracy; the peer is the same training in threads of this process,
so the ratio is what a deployment costs where computing costs nothing. *A DPBGD step* is
against the same step of plain torch on one core: a small network, where all is overhead, and
one that takes seconds. All volunteers share this machine's cores: many machines gain more.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

import stoilo
from bench.digits import Reached, make_model, make_parts, train_until
from bench.rows import Row, interleaved_medians
from stoilo.client.capture import capture_task
from stoilo.client.session import Journal
from stoilo.core.codec.nodes import to_node
from stoilo.core.codec.skeleton import encode
from stoilo.core.types import RunStatus
from stoilo.learn import (
    DPBGDOptions,
    DPBGDTrainer,
    LocalBackend,
    ServerBackend,
    make_trainer,
)
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import TorchModel, make_arguments
from stoilo.learn.core.tensors import forms_of
from stoilo.learn.driver.acceptance import Expectation
from stoilo.learn.driver.transport import TransportName
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail
from stoilo.server.validation.validators import (
    Call,
    ValidatorJails,
    ValidatorProgram,
    Validators,
)
from stoilo.testing.deployment import Deployment
from tests.support.learning import load_digits

VOLUNTEERS = 3
ACCURACY = 0.93
WISHES: Mapping[str, Mapping[str, Any]] = {
    "dpbgd": {"rate": 0.05},
    "vcasgd": {"alpha": 0.5, "rate": 0.5, "batch": 20},
    "downpour": {"batch": 20, "push": 8, "rate": 0.1},
    "sandblaster": {"penalty": 1e-4},
    "sync": {"batch": 100, "rate": 0.3},
    "fedavg": {"rate": 0.5, "batch": 20},
    "diloco": {"rate": 0.02, "batch": 20},
    "ssp": {"rate": 0.3, "staleness": 3},
    "logistic": {"rate": 0.001},
}
"""Each method's settings: rates of which it converges, not the best there are."""
WIDTHS = (32, 2048)
"""Hidden units of the two layers of the step's network: 4 thousand, 4 million weights."""
Place = LocalBackend | ServerBackend


async def reach(method: str, place: Place, accuracy: float) -> Reached:
    """Train by a method until the accuracy is reached."""
    trainer = make_trainer(
        method,
        make_model(),
        make_parts(VOLUNTEERS),
        place,
        epochs=300,
        **WISHES[method],
    )
    async with trainer:
        return await train_until(trainer, accuracy)


async def measure_methods(
    conn: stoilo.Connection, methods: Sequence[str], accuracy: float
) -> list[Row]:
    """Return a row for each method."""
    rows = []
    for method in methods:
        async with LocalBackend(VOLUNTEERS) as threads:
            plain = await reach(method, threads, accuracy)
        async with ServerBackend(conn) as server:
            found = await reach(method, server, accuracy)
        name = f"{method}: time to {accuracy:.0%} of the digits, {found.answers} tasks"
        peer = f"threads here, {plain.answers} tasks"
        ratio = found.seconds / plain.seconds
        rows.append(
            Row(name, found.seconds, "s", peer, plain.seconds, ratio, "of local")
        )
    return rows


def make_network(width: int) -> nn.Module:
    """Return a network of two hidden layers, the same each time."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, 10),
    )  # fmt: skip


def load_tensors() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the training digits."""
    digits = load_digits()
    return torch.tensor(digits.images, dtype=torch.float32), torch.tensor(digits.labels)


def step_locally(width: int, steps: int) -> float:
    """Return the median time of a full-batch step of plain torch on one core, s."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    network, (x, y) = make_network(width), load_tensors()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    times = []
    for _ in range(steps):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(x), y)
        loss.backward()  # type: ignore[no-untyped-call]  # torch says no more
        optimizer.step()
        times.append(time.perf_counter() - began)
    torch.set_num_threads(threads)
    return statistics.median(times)


async def step_in_jails(
    conn: stoilo.Connection, width: int, steps: int, transport: TransportName
) -> float:
    """Return the median time of a DPBGD step, s: one task a volunteer."""
    x, y = load_tensors()
    trainer = DPBGDTrainer(
        conn, make_network(width), nn.functional.cross_entropy, torch.optim.SGD,
        {"lr": 0.1}, (x.numpy(), y.numpy()),
        options=DPBGDOptions(tasks=VOLUNTEERS, transport=transport),
    )  # fmt: skip
    times = []
    async with trainer:
        await trainer.train_epoch()  # parts travel once, zygotes start
        for _ in range(steps):
            began = time.perf_counter()
            await trainer.train_epoch()
            times.append(time.perf_counter() - began)
    return statistics.median(times)


async def measure_steps(
    conn: stoilo.Connection, widths: Sequence[int], steps: int
) -> list[Row]:
    """Return a row for each size and codec."""
    rows = []
    for width in widths:
        plain = await asyncio.to_thread(step_locally, width, steps)
        weights = sum(p.numel() for p in make_network(width).parameters())
        names: tuple[TransportName, ...] = ("raw", "compressed", "ternary")
        for name in names:
            took = await step_in_jails(conn, width, steps, name)
            title = f"DPBGD step, {weights:,} weights, {name}"
            peer, ratio = "plain torch, one core", took / plain
            rows.append(
                Row(title, took * 1e3, "ms", peer, plain * 1e3, ratio, "of local")
            )
    return rows


def measure_kept(runs: int = 30) -> list[Row]:
    """Return the row of a kernel whose code the zygote holds, against compiling it."""
    level, (x, y) = load_level("tensor"), load_tensors()
    model = TorchModel(make_network(WIDTHS[0]), nn.functional.cross_entropy)
    given = make_arguments(model, model.first(), Part(x.numpy(), y.numpy()), {})
    captured = capture_task(model.kernel("gradient"), given)
    limits = level.default_limits()

    def run(more: str) -> None:
        source = captured.task_module + more
        request = TaskRequest(
            source, captured.entry, captured.arguments, cast("Any", captured.blobs)
        )
        assert run_task(jail, request, limits).status is RunStatus.OK

    with Jail(level, TASK_JOB) as jail:
        took = interleaved_medians(
            {"kept": lambda: run(""), "no": lambda: run("\n")}, runs
        )
    name, peer = "DPBGD gradient in a warm zygote, kept", "compiled in the jail"
    kept, plain = took["kept"] * 1e3, took["no"] * 1e3
    return [Row(name, kept, "ms", peer, plain, kept / plain, "of compiling")]


def measure_check(runs: int = 30) -> list[Row]:
    """Return the row of the form check in the server's process, against a warm jail."""
    first = TorchModel(make_network(WIDTHS[0]), nn.functional.cross_entropy).first()
    arrays = dict(first.parameters)
    check = Expectation(0, 1, forms_of(arrays), {}).validator()
    found = capture_task(count_nothing, {}, check)
    value = encode(to_node({"version": 0, "samples": 1, "loss_sum": 1.0, "correct": -1,
                            "tensors": arrays, "buffers": {}}))  # fmt: skip

    def decide(more: str) -> None:
        source = (found.validator_module + more).encode()  # one byte more is jailed
        program = ValidatorProgram(source, found.init_entry, "", "numeric")
        assert validators.decide(Call(program, "init", (value,)))

    jails = ValidatorJails()
    validators = Validators(jails.of)
    took = interleaved_medians(
        {"own": lambda: decide(""), "no": lambda: decide("\n")}, runs
    )
    jails.close()
    name, peer = f"form check of an answer of {len(value):,} bytes", "in a warm jail"
    own, plain = took["own"] * 1e3, took["no"] * 1e3
    return [Row(name, own, "ms", peer, plain, own / plain, "of jailed")]


def count_nothing(_: dict[str, Any]) -> int:
    """Stand for a task: only its validator is looked at."""
    return 0


def measure(
    methods: Sequence[str] = tuple(WISHES),
    accuracy: float = ACCURACY,
    widths: Sequence[int] = WIDTHS,
    steps: int = 5,
) -> list[Row]:
    """Start a deployment and return all rows."""

    async def all_rows(address: str, journal: Journal) -> list[Row]:
        async with stoilo.connect(address, journal=journal) as conn:
            rows = await measure_methods(conn, methods, accuracy)
            return rows + await measure_steps(conn, widths, steps)

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with Deployment(place / "data", volunteers=VOLUNTEERS) as running:
            assert running.line is not None
            journal = Journal(place / "journal")
            rows = asyncio.run(all_rows(running.line.connection, journal))
    return [*rows, *measure_kept(), *measure_check()]
