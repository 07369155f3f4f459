"""Trainings handed over to a coordinator's process: ends, kills, strangers, refusals."""

import asyncio
import csv
import json
from pathlib import Path

import numpy as np
import pytest

from stoilo import connect, learn
from stoilo.client.address import read_connection
from stoilo.client.session import Journal
from stoilo.core import frames
from stoilo.core.errors import DeniedError, UsageError
from stoilo.learn.store.place import read_place
from tests.support.handedover import CoordinatorProcess, ServedFake
from tests.support.jailed import JailAnswerer


def squares(parameters, x, y):
    rest = x @ parameters["w"] - y
    return float(rest @ rest) / 2, {"w": x.T @ rest}


def problem(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((48, 3))
    return x, x @ np.array([1.0, -2.0, 0.5]) + 0.1 * rng.standard_normal(48)


def model():
    return learn.ArrayModel({"w": np.zeros(3)}, squares)


SETTINGS = {"epochs": 6, "rate": 0.1, "optimizer": learn.Adam(0.1)}
OPTIONS = learn.TrainerOptions(tasks=3)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with (
        JailAnswerer() as jail,
        ServedFake(tmp_path_factory.mktemp("server"), jail) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory, server):
    folder = tmp_path_factory.mktemp("coordinator") / "state"
    with CoordinatorProcess(folder, server.file) as running:
        yield running


def hand(coordinator, server, *, options=OPTIONS, who="ada", data=None, **settings):
    return learn.hand_over(
        coordinator.files[who],
        "dpbgd",
        model(),
        problem() if data is None else data,
        account=server.file,
        options=options,
        **SETTINGS | settings,
    )


def at_home(server, **settings):
    async def train():
        address = read_connection(server.file)
        async with connect(address, journal=Journal(None)) as conn:
            given = SETTINGS | settings
            return await learn.fit(
                "dpbgd", model(), problem(), conn, options=OPTIONS, **given
            )

    return asyncio.run(train())


async def until(run, updates):
    while (await run.progress()).updates < updates:  # noqa: ASYNC110 - a process
        await asyncio.sleep(0.02)


def test_model_log_and_tables_come_home_bit_equal_to_a_run_there(
    coordinator, server, tmp_path
):
    async def work():
        options = learn.TrainerOptions(tasks=3, held_out=problem(1))
        ident = (await hand(coordinator, server, options=options)).id
        run = learn.take_up(ident, coordinator=coordinator.files["ada"])
        progress = await run.wait(0.05)
        assert progress.phase == "ended", progress
        return progress, await run.snapshot(), await run.bring_home(tmp_path / "home")

    progress, snapshot, home = asyncio.run(work())
    expected = at_home(server)
    assert progress.updates == 18
    assert np.array_equal(snapshot.parameters["w"], expected.snapshot.parameters["w"])
    rows = table(home / "training.csv")
    assert [row["key"] for row in rows] == [u.key for u in expected.history.updates]
    found = [float(row["loss"]) for row in table(home / "evaluation.csv")]
    assert len(found) == 6
    assert found[-1] < found[0]


def table(path):
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.mark.parametrize(
    "killed_at",
    [5, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 8, 11))],
)
def test_coordinator_killed_in_mid_training_ends_with_the_same_bits(
    coordinator, server, killed_at
):
    async def work():
        run = await hand(coordinator, server, epochs=5, seed=killed_at)
        await until(run, killed_at)
        coordinator.kill()
        coordinator.start()
        return await run.wait(0.05), await run.snapshot(), await run.log()

    progress, snapshot, log = asyncio.run(work())
    expected = at_home(server, epochs=5, seed=killed_at).snapshot.parameters["w"]
    assert progress.phase == "ended", progress
    assert np.array_equal(snapshot.parameters["w"], expected)
    keys = [json.loads(line)["key"] for line in log.splitlines()]
    assert len(keys) == len(set(keys)) == 15


def test_partial_log_comes_at_any_time_and_tables_after_the_end(coordinator, server):
    async def work():
        run = await hand(coordinator, server, epochs=500)
        await until(run, 4)
        log = await run.log()
        with pytest.raises(UsageError, match="no file of a training that is running"):
            await run.snapshot()
        await run.stop()
        progress = await run.wait(0.05)
        return log, progress, await run.snapshot()

    log, progress, snapshot = asyncio.run(work())
    assert json.loads(log.splitlines()[0])["update"] == 0
    assert progress.phase == "stopped"
    assert progress.updates < 1500
    assert snapshot.version == progress.version > 0


def test_token_of_the_server_is_gone_with_the_end(coordinator, server):
    async def work():
        run = await hand(coordinator, server, epochs=200)
        path = coordinator.folder / "runs" / run.id / "token"
        before = path.read_text(), path.stat().st_mode & 0o777
        await run.stop()
        await run.wait(0.05)
        return before, path.exists()

    assert asyncio.run(work()) == ((server.service.token, 0o600), False)


def test_another_token_sees_nothing_of_a_training(coordinator, server):
    async def work():
        run = await hand(coordinator, server, seed=5, epochs=1)
        other = learn.take_up(run.id, coordinator=coordinator.files["bob"])
        for act in (other.progress, other.stop, other.log, other.forget):
            with pytest.raises(DeniedError, match="STO-R003"):
                await act()
        mine = await learn.list_handed(coordinator.files["ada"])
        return run.id, mine, await learn.list_handed(coordinator.files["bob"])

    ident, mine, others = asyncio.run(work())
    assert ident in mine
    assert others == {}


def test_unknown_token_is_denied(coordinator, tmp_path):
    record = json.loads(Path(coordinator.files["ada"]).read_text())
    path = tmp_path / "forged.json"
    path.write_text(json.dumps(record | {"token": "c" * 43}))
    with pytest.raises(DeniedError, match="STO-R001"):
        asyncio.run(learn.list_handed(path))


def test_nonsense_ends_its_own_stream_and_no_other(coordinator):
    with read_place(Path(coordinator.files["ada"])).connect(10.0) as stream:
        frames.send_frame(stream, b"\xc1", most=9, code="STO-T038", header=8)
        assert stream.recv(1) == b""
    assert asyncio.run(learn.list_handed(coordinator.files["bob"])) == {}


def test_same_training_twice_is_one_and_forgotten_it_is_gone(coordinator, server):
    async def work():
        given = {"seed": 77, "epochs": 1}
        first, second = [await hand(coordinator, server, **given) for _ in range(2)]
        await first.wait(0.05)
        await first.forget()
        with pytest.raises(DeniedError, match="STO-R003"):
            await second.progress()
        return first.id, second.id

    first, second = asyncio.run(work())
    assert first == second
    assert not (coordinator.folder / "runs" / first).exists()


def test_training_with_a_token_that_the_server_denies_fails_and_says_so(
    coordinator, server, tmp_path
):
    record = json.loads(server.file.read_text()) | {"token": "revoked"}
    (tmp_path / "old.json").write_text(json.dumps(record))

    async def work():
        run = await learn.hand_over(
            coordinator.files["ada"], "dpbgd", model(), problem(),
            account=tmp_path / "old.json", options=OPTIONS, **SETTINGS,
        )  # fmt: skip
        return await run.wait(0.05)

    progress = asyncio.run(work())
    assert (progress.phase, progress.error[:9]) == ("failed", "STO-R001:")


def constant(update):  # noqa: ARG001 - a schedule
    return 1.0


AT_HOME = {
    "options.folder": {"options": learn.TrainerOptions(folder=Path("run"))},
    "options.watcher": {"options": learn.TrainerOptions(watcher=lambda *_: None)},
    "options.schedule": {"options": learn.TrainerOptions(schedule=constant)},
    "optimizer": {"optimizer": learn.TorchOptimizer},
}


@pytest.mark.parametrize("name", AT_HOME)
def test_what_needs_this_process_is_refused_by_name_before_anything_leaves(
    coordinator, server, name, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    given, runs = AT_HOME[name], coordinator.folder / "runs"
    before = sorted(runs.iterdir())
    with pytest.raises(UsageError, match=f"{name}.* cannot be handed over"):
        asyncio.run(hand(coordinator, server, **given))
    assert sorted(runs.iterdir()) == before


@pytest.mark.slow
def test_bounds_on_runs_disk_and_updates_hold(tmp_path, server):
    words = ["--most-runs", "2", "--most-bytes", "150000", "--most-updates", "4"]

    async def work(coordinator):
        first = await hand(coordinator, server, seed=1)
        progress = await first.wait(0.05)
        with pytest.raises(DeniedError, match="STO-R006"):
            await hand(coordinator, server, data=problem_of(20_000), seed=2)
        with pytest.raises(DeniedError, match="STO-R004"):
            await hand(coordinator, server, seed=3)
        return progress, await first.snapshot()

    with CoordinatorProcess(tmp_path / "state", server.file, *words) as running:
        progress, snapshot = asyncio.run(work(running))
    assert progress.phase == "failed"
    assert progress.error.startswith("STO-R004")
    assert progress.updates == 4
    assert snapshot.version > 0


def problem_of(samples):
    x = np.ones((samples, 3))
    return x, x @ np.ones(3)


def test_second_coordinator_on_the_folder_is_refused(coordinator, server):
    second = CoordinatorProcess.__new__(CoordinatorProcess)
    with pytest.raises(json.JSONDecodeError), second:  # it ends before its line
        second.__init__(coordinator.folder, server.file)
    assert asyncio.run(learn.list_handed(coordinator.files["bob"])) == {}
