"""Shards of vectors: in this process and in their own, on disk, killed."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from stoilo.core.errors import (
    InternalError,
    StoiloError,
    TrustError,
    UnreachableError,
    UsageError,
)
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.core.orders import Snapshot
from stoilo.learn.core.tensors import flatten
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.methods.lbfgs import Coordinator, Rules
from stoilo.learn.methods.sandblaster import Sandblaster, SandblasterSettings
from stoilo.learn.store import protocol
from stoilo.learn.store.remote import RemoteShard
from stoilo.learn.store.shards import LocalShard
from stoilo.learn.store.vectors import KEPT, Vectors
from tests.support.learning import Net, Volunteers, load_digits, run_serially
from tests.support.resuming import store

NET = Net((64, 10))


MAKES = {
    "memory": lambda _: LocalShard(),
    "file": LocalShard,
    "process": RemoteShard,
}


@pytest.fixture(params=[*MAKES])
def vectors(request, tmp_path):
    shard = MAKES[request.param](tmp_path / "shard.db")
    yield Vectors(4, [shard])
    shard.close()


@pytest.fixture
def remote(tmp_path):
    shard = RemoteShard(tmp_path / "shard.db")
    yield shard
    shard.close()


def test_commands_do_what_they_say(vectors):
    vectors.put("a", np.array([1.0, -2.0, 3.0, 0.5]))
    vectors.zero("b", "a")
    vectors.axpy("b", 2.0, "a")
    vectors.put("one", np.ones(4))
    vectors.axpy("b", 1.0, "one")
    vectors.assign("c", -1.0, "b")
    assert vectors.gather("c").tolist() == [-3.0, 3.0, -7.0, -2.0]
    assert vectors.dot("a", "b") == 31.0
    assert (vectors.largest("a"), vectors.total("a")) == (3.0, 6.5)
    vectors.drop(["c"])
    with pytest.raises(TrustError, match="STO-T038"):
        vectors.gather("c")


def test_what_came_after_a_save_is_forgotten_by_a_load(vectors):
    vectors.put("a", np.arange(4.0))
    saved = store(vectors.save())
    vectors.zero("a", "a")
    vectors.put("later", np.ones(4))
    vectors.load(saved)
    assert vectors.gather("a").tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(TrustError, match="STO-T038"):
        vectors.gather("later")


def test_two_spaces_and_the_cells_of_a_shard_have_nothing_in_common(tmp_path):
    shard = LocalShard(tmp_path / "shard.db")
    one, other = (Vectors(4, [shard], space) for space in ("one", "other"))
    shard.create({"x": 7})
    one.put("x", np.ones(4))
    saved = one.save()
    other.put("x", np.zeros(4))
    for _ in range(2 * KEPT):  # what one space sweeps is not what the other has
        other.save()
    one.load(saved)
    assert one.total("x") == 4.0
    assert shard.read(["x"])["x"].value == 7
    shard.close()


@pytest.mark.parametrize("request_", [
    protocol.Calculate("s", "__class__", []), protocol.Calculate("s", "do", ["a"]),
    protocol.Calculate("s", "dot", ["a"]), protocol.Calculate("s", "dot", ["a", "b"]),
    protocol.Calculate("s", "dot", ["a", "longer"]),
    protocol.GetRange("s", "none"), protocol.LoadGeneration("s", 99),
    protocol.Calculate("s", "axpy", ["a", "longer"]), protocol.ListVectors("other"),
    protocol.OpenShard("x", []), protocol.RoundRange("s", "a", [("float32", 3)]),
    protocol.RoundRange("s", "a", [("none", 4)]), protocol.RoundRange("s", "a", []),
    protocol.PublishRange("s", "a", "0", [("float32", 4)]),
    protocol.TakeAnswer("s", "a", "t", 0, 4, {}, 0, 1, None, []),
])  # fmt: skip
def test_request_that_is_none_is_refused_and_the_next_one_answered(remote, request_):
    vectors = Vectors(4, [remote], "s")
    vectors.put("a", np.zeros(4))
    remote.ask(protocol.PutRange("s", "longer", np.zeros(5)))
    with pytest.raises(StoiloError, match=r"STO-T012|STO-T038"):
        remote.process.ask(request_)
    assert vectors.total("a") == 0.0


def test_frame_beyond_all_bounds_is_not_sent(remote, monkeypatch):
    vectors = Vectors(4, [remote])
    monkeypatch.setattr(protocol, "MOST_BYTES", 20)
    with pytest.raises(TrustError, match="STO-T038"):
        vectors.put("a", np.ones(4))


def gather():
    digits = load_digits()
    cut = np.split(np.arange(120), [50])
    return Volunteers(NET, digits.images, digits.labels, cut)


def make(crew, folder=None):
    wanted = SandblasterSettings(
        2, 1e-3, 3, rules=Rules(iterations=8, history=3, curvature=0.1),
        folder=folder,
    )  # fmt: skip
    return Sandblaster(Snapshot(0, NET.start(spread=0.0)), crew.sizes, wanted)


@pytest.mark.slow
def test_processes_give_what_objects_give_and_a_kill_costs_nothing(tmp_path):
    crew = gather()
    wanted, method = make(crew), make(crew, tmp_path)
    run_serially(wanted, crew.answer)
    run_serially(method, crew.answer, limit=18)
    saved = store(method.save())
    assert (
        sum(a.size for a in saved.tensors.values()) <= 2 * 650
    )  # no vector of the shards
    run_serially(method, crew.answer, limit=3)
    os.kill(method._vectors.shards[1].process.pid, signal.SIGKILL)
    with pytest.raises(UnreachableError, match="STO-T037"):
        run_serially(method, crew.answer)
    method.close()
    again = make(crew, tmp_path)
    again.load(saved)
    run_serially(again, crew.answer)
    again.close()
    ours, theirs = (flatten(m.snapshot.parameters) for m in (again, wanted))
    assert (ours == theirs).all()


def bowl(parameters, x, y):
    """Least squares: sum of losses and its gradient."""
    rest = x @ parameters["w"] - y
    return 0.5 * float(rest @ rest), {"w": x.T @ rest}


def start_run(folder):
    rng = np.random.default_rng(0)
    parts = [Part(rng.normal(size=(n, 6)), rng.normal(size=n)) for n in (20, 9)]
    model = ArrayModel({"w": np.zeros(6)}, bowl)
    rules = Rules(iterations=4)
    wanted = SandblasterSettings(1, 1e-3, 2, rules=rules, folder=folder / "vectors")
    method = Sandblaster(model.first(), [len(part) for part in parts], wanted)
    settings = RunSettings(folder=folder / "run", clip=None)
    return Run(method, model, parts, LocalBackend(), settings)


@pytest.mark.slow
async def test_killed_shard_ends_a_run_and_the_next_run_goes_on_to_the_same_end(
    tmp_path,
):
    async with start_run(tmp_path / "whole") as whole:
        wanted = await whole.finish()
    first = start_run(tmp_path / "killed")
    await first.start()
    for _ in range(7):
        await first.step()
    os.kill(first.method._vectors.shards[0].process.pid, signal.SIGKILL)
    with pytest.raises(UnreachableError, match="STO-T037"):
        await first.finish()
    first.method.close()
    async with start_run(tmp_path / "killed") as second:
        assert second.method.iterations > 0
        found = await second.finish()
    for run in (whole, second):
        run.method.close()
    assert found.version == wanted.version
    assert np.allclose(found.parameters["w"], wanted.parameters["w"], rtol=1e-9)


SIZE = 100_000
"""Entries of a vector: 0.8 MB."""


def descend(shards):
    """Minimise ½|x|² + ½(c·x)² - b·x by commands alone; return traced peak and shards."""
    vectors = Vectors(SIZE, shards)
    rng = np.random.default_rng(0)
    for name in ("b", "c"):
        vectors.put(name, rng.normal(size=SIZE))
    for name in ("x", "trial"):
        vectors.zero(name, "b")
    moved = count_moved(vectors)
    coordinator = Coordinator(Rules(tolerance=1e-6))
    tracemalloc.start()
    while not coordinator.stopped:
        along, back = vectors.dot("c", "trial"), vectors.dot("b", "trial")
        value = 0.5 * vectors.dot("trial", "trial") + 0.5 * along**2 - back
        vectors.assign("slope", 1.0, "trial")
        vectors.axpy("slope", along, "c")
        vectors.axpy("slope", -1.0, "b")
        coordinator.judge(vectors, value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    for shard in shards:
        shard.close()
    return coordinator, peak, count_moved(vectors) - moved


def count_moved(vectors):
    remote = [s for s in vectors.shards if isinstance(s, RemoteShard)]
    return sum(shard.process.moved_bytes for shard in remote)


@pytest.mark.slow
def test_coordinators_process_holds_no_vector_and_moves_none(tmp_path):
    """Control: with shards in this process the same run holds many vectors."""
    apart, peak, traffic = descend([RemoteShard(tmp_path / f"{n}.db") for n in "ab"])
    local, held, _ = descend([LocalShard(), LocalShard()])
    assert apart.converged
    assert (apart.iterations, apart.value) == (local.iterations, local.value)
    assert apart.made > 1
    assert peak < SIZE * 8 / 10
    assert traffic < SIZE * 8 / 10
    assert held > 5 * SIZE * 8


HOLDER = """
import sys, time, numpy as np
from pathlib import Path
from stoilo.learn.store.remote import RemoteShard
from stoilo.learn.store.vectors import Vectors
shard = RemoteShard(Path(sys.argv[1]))
vectors = Vectors(4, [shard])
vectors.put("a", np.arange(4.0))
print(shard.process.pid, vectors.save().plain["generations"][0], flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_process_ends_with_a_killed_trainer_and_the_next_one_has_its_vectors(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "shard.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as trainer:
        pid, generation = map(int, trainer.stdout.readline().split())
        trainer.kill()
    shard = RemoteShard(tmp_path / "shard.db", takeover_s=60.0)
    vectors = Vectors(4, [shard])
    shard.ask(protocol.LoadGeneration("vectors", generation))
    assert vectors.gather("a").tolist() == [0.0, 1.0, 2.0, 3.0]
    shard.close()
    until = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()


def count_written(path):
    """How many vectors lie in the file."""
    with closing(sqlite3.connect(path)) as file:
        return file.execute("SELECT count(*) FROM blob").fetchone()[0]


def test_vector_is_written_once_and_old_generations_go(tmp_path):
    shard = LocalShard(tmp_path / "shard.db")
    vectors = Vectors(1, [shard])
    vectors.put("kept", np.full(1, 0.5))
    for turn in range(9):
        vectors.put("new", np.array([float(turn)]))
        newest = vectors.save()
    vectors.drop(["new"])
    vectors.save()
    assert count_written(tmp_path / "shard.db") == 1 + KEPT - 1
    vectors.load(newest)
    assert vectors.gather("new").tolist() == [8.0]
    with pytest.raises(UsageError, match="STO-T012"):
        shard.ask(protocol.LoadGeneration("vectors", 1))
    shard.close()


def test_generation_that_the_checkpoint_names_stays_however_many_follow(remote):
    vectors = Vectors(4, [remote])
    vectors.put("a", np.arange(4.0))
    saved = vectors.save()
    vectors.keep()
    for turn in range(2 * KEPT):
        vectors.put("a", np.full(4, float(turn)))
        vectors.save()
    vectors.load(saved)
    assert vectors.gather("a").tolist() == [0.0, 1.0, 2.0, 3.0]


async def test_run_whose_saves_failed_goes_on_from_the_one_before(tmp_path):
    run = start_run(tmp_path)
    await run.start()
    await run.step()
    (tmp_path / "run" / "run.json.new").mkdir()
    for _ in range(2 * KEPT):
        with pytest.raises(InternalError, match="STO-T022"):
            await run.step()
    run.method.close()
    run._saving.close()  # killed here
    (tmp_path / "run" / "run.json.new").rmdir()
    async with start_run(tmp_path) as again:
        assert len(again.history) == 1
    again.method.close()


def test_module_of_the_current_folder_is_not_run(tmp_path, monkeypatch):
    (tmp_path / "msgspec.py").write_text("raise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    shard = RemoteShard(tmp_path / "shard.db")
    assert shard.list_keys() == ()
    shard.close()


def test_process_that_does_not_answer_is_given_up(remote):
    vectors = Vectors(4, [remote])
    os.kill(remote.process.pid, signal.SIGSTOP)
    remote.process._connection.settimeout(0.05)
    with pytest.raises(UnreachableError, match="STO-T037"):
        vectors.put("a", np.ones(4))


def test_next_process_knows_none_of_the_vectors_and_says_so(remote):
    vectors = Vectors(4, [remote])
    os.kill(remote.process.pid, signal.SIGKILL)
    with pytest.raises(UnreachableError, match="STO-T037"):
        vectors.put("a", np.ones(4))
    with pytest.raises(TrustError, match="STO-T038"):
        vectors.put("a", np.ones(4))


@pytest.mark.parametrize("damage", [b"", b"x" * 200, b"\0" * 8])
def test_damaged_vectors_are_named(tmp_path, damage):
    shard = LocalShard(tmp_path / "shard.db")
    vectors = Vectors(3, [shard])
    vectors.put("a", np.arange(3.0))
    saved = vectors.save()
    with closing(sqlite3.connect(tmp_path / "shard.db", isolation_level=None)) as file:
        file.execute("UPDATE blob SET body = ?", (damage,))
    with pytest.raises(TrustError, match="STO-T011"):
        vectors.load(saved)
    shard.close()


def test_file_of_another_training_is_refused(tmp_path):
    first = LocalShard(tmp_path / "shard.db")
    second = RemoteShard(tmp_path / "shard.db", takeover_s=0.1)
    with pytest.raises(UsageError, match="STO-T023"):
        Vectors(3, [second])
    second.close()
    first.close()


@pytest.mark.parametrize("size", [3, 5])
def test_state_of_other_ranges_is_refused(size):
    saved = Vectors(4, [LocalShard()])
    saved.put("a", np.arange(4.0))
    with pytest.raises(UsageError, match="STO-T012"):
        Vectors(size, [LocalShard()]).load(saved.save())
    with pytest.raises(UsageError, match="STO-T012"):
        Vectors(4, [LocalShard(), LocalShard()]).load(saved.save())
