"""Pipelines of tasks by gate, log and jail: activations stay at the server, hosts may fail."""

import asyncio
import json
import os
import signal
import sqlite3
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import stoilo
from stoilo.client.options import CreateOptions
from stoilo.client.session import Journal
from stoilo.learn.core.data import Part
from stoilo.learn.methods.optimizers import Sgd
from stoilo.learn.methods.staged import StagedSettings
from stoilo.learn.trainers.options import TrainerOptions
from stoilo.learn.trainers.staged import StagedTrainer, apply_wide, vocabulary_loss
from stoilo.testing.deployment import Deployment
from stoilo.testing.served import run_stoilo
from tests.support.stagedtasks import follow_rule, make_stages, make_task

pytestmark = pytest.mark.slow
RATE, BATCH, WIDE = 0.2, 256, 600
AGREE = CreateOptions(2, 2, 9, 9, 9, delay_bound=15)


class Tensors(Deployment):
    """A deployment whose further volunteers' accounts take tasks of torch, too."""

    def account(self, email):
        words = ["--email", email, "--max-level", "tensor", "--json"]
        made = run_stoilo("boinc", "account", "--data", str(self.data), *words)
        return json.loads(made)["key"]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    place = tmp_path_factory.mktemp("staged")
    with Tensors(place / "data", volunteers=2) as running:
        yield running


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the jail
    yield
    torch.set_num_threads(before)


def connect(deployment):
    journal = Journal(deployment.data.parent / "journal")
    return stoilo.connect(deployment.line.connection, journal=journal)


def make_trainer(conn, seed, group, width, **options):
    samples = 3 * group
    return StagedTrainer(
        conn,
        make_stages(seed, 3, width),
        [Part(*make_task(seed, samples))],
        StagedSettings(epochs=2, group=group, batch=BATCH, seed=seed),
        Sgd(RATE),
        loss=nn.functional.cross_entropy,
        options=TrainerOptions(**options),
    )


def check(trainer, seed, group, width):
    method = trainer.run.method
    rows = [list(method.piece(number).rows) for number in range(method.groups)]
    task = make_task(seed, 3 * group)
    start = make_stages(seed, 3, width)
    for depth in (3, 1):
        ends = follow_rule(start, task, rows, RATE, depth, batch=BATCH)
        found = trainer.snapshot.parameters
        same = [np.array_equal(found[name], end) for name, end in ends.items()]
        assert all(same) is (depth == 3)
    keys = [one.key for one in trainer.run.history.updates if one.applied]
    assert len(keys) == len(set(keys)) == 5 * method.groups


async def note_transfers(conn, names):
    """Note the digests that go to and come from the server in `names`."""
    wire = conn._session.wire
    upload, download = wire.upload, wire.download

    async def send(digest, data, **how):
        names.append(digest)
        return await upload(digest, data, **how)

    async def fetch(digest, **how):
        names.append(digest)
        return await download(digest, **how)

    wire.upload, wire.download = send, fetch


def test_activations_go_from_host_to_host_and_never_here(deployment, tmp_path):
    """1.2 MB each: more than what the server's answer to a poll brings along.

    The trainer is killed on the way: the next one names what its tasks left at the server.
    """

    async def train(steps, moved, stayed):
        async with connect(deployment) as conn:
            await note_transfers(conn, moved)
            trainer = make_trainer(conn, 0, 512, WIDE, folder=tmp_path)
            await trainer.start()
            mailbox = trainer.run._jobs.mailbox
            while steps and not trainer.finished:
                await trainer._step()
                stayed |= {one.digest for one in mailbox._left.values()}
                steps -= 1
            if steps:
                await trainer.close()
            else:  # as a kill would: nothing is written any more
                await trainer.run.backend.close()
                trainer.run._saving.close()
        return trainer

    moved, stayed = [], set()
    asyncio.run(train(12, moved, stayed))
    trainer = asyncio.run(train(100, moved, stayed))
    check(trainer, 0, 512, WIDE)
    assert len(stayed) == 2 * trainer.run.method.groups
    assert moved
    assert not stayed & set(moved)


def bend(weights, x):
    return np.tanh(x @ weights["a"]) @ weights["b"]


def test_vocabulary_and_wide_layer_in_shards_are_the_whole(deployment):
    rng = np.random.default_rng(0)
    x, w, b = (rng.normal(size=s) for s in ((24, 6), (50, 6), 50))
    y = rng.integers(0, 50, 24)
    words = [{"weight": w[at], "bias": b[at]} for at in (slice(33), slice(33, 50))]
    wide = [{"a": w.T[:, at], "b": w[at]} for at in (slice(9), slice(9, 50))]
    options = TrainerOptions(tasks=2, redundancy=AGREE)

    async def compute():
        async with connect(deployment) as conn:
            how = {"smoothing": 0.1, "options": options}
            return (
                await vocabulary_loss(conn, x, y, words, **how),
                await apply_wide(conn, x, wide, bend, (6,), options),
            )

    (loss, slope), output = asyncio.run(compute())
    given = torch.tensor(x, requires_grad=True)
    z = given @ torch.tensor(w).T + torch.tensor(b)
    total = nn.functional.cross_entropy(z, torch.tensor(y), label_smoothing=0.1)
    total.backward()
    assert abs(loss - total.item()) < 1e-12
    assert np.abs(slope - given.grad.numpy()).max() < 1e-12
    np.testing.assert_allclose(output, np.tanh(x @ w.T) @ w, rtol=1e-12)


async def kill_at_work(process, is_busy, step):
    """Kill a volunteer while it has a copy; it stands still while we look once more."""
    while True:
        while not is_busy():
            await step()
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(1)  # what it had sent before has come
        if is_busy():
            return process.kill()
        process.send_signal(signal.SIGCONT)


def is_at_work(deployment, email):
    query = (
        "select count(*) from engine_result c join engine_user u on u.id = c.user_id"
        " where c.state = 'in_progress' and u.email = ?"
    )
    file = deployment.data / "engine" / "engine.sqlite"
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as found:
        return found.execute(query, [email]).fetchone()[0] > 0


@pytest.fixture
def others(deployment, tmp_path):
    """A host that lies with the right form, and one that will be killed."""
    lies = {**os.environ, "STOILO_LIES": "ten times"}
    liar = deployment.attach(
        "liar@example.org", tmp_path / "liar", max_level="tensor",
        program="tests.support.liar", environ=lies,
    )  # fmt: skip
    mortal = deployment.attach(
        "mortal@example.org", tmp_path / "mortal", max_level="tensor"
    )
    yield mortal
    for process in (liar, mortal):
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def test_liar_and_killed_host_change_no_bit_where_copies_agree(deployment, others):
    async def train():
        async with connect(deployment) as conn:
            trainer = make_trainer(conn, 1, 32, 8, redundancy=AGREE)
            async with trainer:
                busy = partial(is_at_work, deployment, "mortal@example.org")
                await kill_at_work(others, busy, trainer._step)
                await trainer.train()
            tasks = [conn.restore_task(e.task_id) for e in conn.recent_tasks(40)]
            copies = [c for task in tasks for c in (await task.status()).copies]
        return trainer, copies

    trainer, copies = asyncio.run(train())
    check(trainer, 1, 32, 8)
    # Both had their chance: a quorum outvoted the liar, and a deadline found the dead one.
    assert {copy.outcome for copy in copies} == {"success", "invalid", "no_reply"}
