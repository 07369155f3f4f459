"""What wrong answers come to at a real server: refused there, their host marked."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import stoilo
from stoilo.client.options import CreateOptions
from stoilo.client.session import Journal
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.backends.server import ServerBackend
from stoilo.learn.core.data import split
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.methods.optimizers import Sgd
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from stoilo.testing.deployment import Deployment
from tests.support.liar import ENCODED_LIES, LIES
from tests.support.points import make_samples

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.slow
EVERY = [*LIES, *ENCODED_LIES]
TURNS = [
    n for i, lie in enumerate(EVERY) for n in ([lie, "truth"] if i % 6 == 5 else [lie])
]
"""A truth between them, or the server lets the liar pause."""


def loss(parameters, x, y):
    rest = x @ parameters["w"] - y
    return float(rest @ rest), {"w": 2.0 * x.T @ rest}


HOOK = """
import os, sys

def note(event, arguments):
    if event == "pickle.find_class":
        with open(os.environ["PICKLE_NOTES"], "a") as notes:
            print(sys.argv, arguments, file=notes)

sys.addaudithook(note)
open(os.environ["PICKLE_NOTES"], "a").close()
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    """A server that notes, with all its volunteers, what is unpickled anywhere."""
    place = tmp_path_factory.mktemp("trust")
    (place / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PICKLE_NOTES", str(place / "unpickled"))
        patch.setenv("PYTHONPATH", f"{place}{os.pathsep}{ROOT}")
        with Deployment(place / "data") as running:
            yield running


def unpickled(deployment):
    return (deployment.data.parent / "unpickled").read_text(encoding="utf-8")


@pytest.fixture
def attach(deployment, tmp_path):
    """Start volunteers by name, of lies if any; all are stopped at the end."""
    processes = []

    def start(name, lies=None):
        place = tmp_path / name
        means = {}
        if lies is not None:
            means = {
                "program": "tests.support.liar",
                "environ": {**os.environ, "STOILO_LIES": ",".join(lies)},
            }
        processes.append(deployment.attach(f"{name}@example.org", place, **means))

    yield start
    for process in processes:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(60) for process in processes] == [0] * len(processes)


def connect(deployment):
    journal = Journal(deployment.data.parent / "journal")
    return stoilo.connect(deployment.line.connection, journal=journal)


def make_run(backend, parts, **settings):
    x, y = make_samples()
    model, pieces = ArrayModel({"w": np.zeros(4)}, loss), split(x, y, parts)
    method = Synchronous(
        model.first(), [len(p) for p in pieces], Sgd(0.01), SynchronousSettings(1)
    )
    return Run(method, model, pieces, backend, RunSettings(in_flight=parts, **settings))


@contextlib.asynccontextmanager
async def start_run(deployment, parts, **settings):
    async with (
        connect(deployment) as conn,
        ServerBackend(conn) as backend,
        make_run(backend, parts, **settings) as run,
    ):
        yield conn, run


async def train_here(parts):
    async with LocalBackend() as backend, make_run(backend, parts) as run:
        return await run.finish()


async def wait_for_invalid(conn, count):
    deadline = time.monotonic() + 120
    codes = []
    while len(codes) < count and time.monotonic() < deadline:
        tasks = [conn.restore_task(e.task_id) for e in conn.recent_tasks(1000)]
        found = [(await task.status()).copies for task in tasks]
        codes = [c.code for copies in found for c in copies if c.outcome == "invalid"]
        await asyncio.sleep(0.5)
    return codes


async def test_every_wrong_form_is_an_invalid_result_and_none_counts(
    deployment, attach
):
    attach("liar", TURNS)
    async with start_run(deployment, len(TURNS)) as (conn, run):
        await run._fill()
        codes = await wait_for_invalid(conn, len(EVERY))
        attach("honest")
        end = await run.finish()
    assert len(codes) == len(EVERY)
    assert codes.count("STO-R057") == len(LIES) + 1  # a tensor, where there is no torch
    here = await train_here(len(TURNS))
    np.testing.assert_array_equal(end.parameters["w"], here.parameters["w"])
    assert (run.tally.refused, run.tally.failed) == (0, 0)
    assert unpickled(deployment) == ""


def rejected_of(deployment, name):
    """Return how many results of a volunteer's host the trainer has rejected."""
    query = (
        "select count(*) from engine_result c join engine_host h on h.id = c.host_id"
        " join engine_user u on u.id = h.user_id where c.code = 'STO-T026' and u.email = ?"
    )
    file = deployment.data / "engine" / "engine.sqlite"
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as found:
        return found.execute(query, [f"{name}@example.org"]).fetchone()[0]


async def test_host_whose_answers_the_trainer_refuses_loses_its_record(
    deployment, attach
):
    attach("forger", ["another version"])
    async with start_run(deployment, 4) as (_, run):
        while run.tally.refused < 4:
            await run._fill()
            await run._settle(await run.backend.next())
        assert rejected_of(deployment, "forger") >= 3
        attach("true")
        end = await run.finish()
    assert rejected_of(deployment, "true") == 0
    exact = (await train_here(4)).parameters["w"]
    np.testing.assert_array_equal(end.parameters["w"], exact)


def test_hook_would_note_a_pickle(deployment):
    program = (
        "import pickle, fractions; pickle.loads(pickle.dumps(fractions.Fraction(1)))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert "Fraction" in unpickled(deployment)


class Exact(ServerBackend):
    """A backend that has copies compared bit for bit."""

    async def submit(self, job):
        return await super().submit(replace(job, alike=None))


async def test_copies_that_differ_by_rounding_agree(deployment, attach):
    attach("other")
    attach("rounding", ["rounding"])
    two = CreateOptions(2, max_total_results=2, max_error_results=1)
    async with connect(deployment) as conn:
        async with ServerBackend(conn, two) as backend, make_run(backend, 1) as run:
            end = await run.finish()
        async with Exact(conn, two) as backend, make_run(backend, 1) as run:
            await run._fill()
            control = await backend.next()
    exact = (await train_here(1)).parameters["w"]
    np.testing.assert_allclose(end.parameters["w"], exact, rtol=1e-5)
    assert "do not agree" in str(control.error)
