"""Watchers: what a tracker or a page is told of a training."""

import importlib
import importlib.util
import math
import tempfile
from xml.etree import ElementTree as ET

import pytest

from stoilo.core.errors import UsageError
from stoilo.learn import (
    LocalBackend,
    MLflow,
    Page,
    SimulatedBackend,
    SimulatedHost,
    TensorBoard,
    TrainerOptions,
    WandB,
    draw,
    fit,
    make_trainer,
)
from tests.support.points import WISHES, make_model, make_samples
from tests.support.trackers import FakeMLflow, FakeRun, FakeWriter

DATA = make_samples()


def read_plot(text):
    return ET.fromstring(text)  # noqa: S314 - we wrote it


SVG = "{http://www.w3.org/2000/svg}"


async def train(*watchers, method="vcasgd", **more):
    options = TrainerOptions(tasks=4, watcher=watchers, **more)
    wish = {"batch": 10, **WISHES[method], "epochs": 3}
    return await fit(method, make_model(), DATA, held_out=DATA, options=options, **wish)


@pytest.mark.parametrize("method", ["vcasgd", "dpbgd", "downpour", "fedavg"])
async def test_each_version_has_a_row_with_the_loss_of_its_answers(method):
    fake = FakeMLflow()
    trained = await train(MLflow(fake), method=method)
    rows = [(step, row) for step, row in fake.logged if "loss" in row]
    assert [step for step, _ in rows] == list(range(1, trained.snapshot.version + 1))
    updates = [one for one in trained.history.updates if one.applied]
    assert sum(row["answers"] for _, row in rows) == len(updates)
    total = sum(one.loss * one.samples for one in updates)
    assert sum(r["loss"] * r["samples"] for _, r in rows) == pytest.approx(total)


async def test_each_epoch_has_a_row_at_its_last_version():
    fake = FakeMLflow()
    trained = await train(MLflow(fake), method="dpbgd")
    rows = [(step, row) for step, row in fake.logged if "held_out/loss" in row]
    losses = [epoch.held_out.loss for epoch in trained.epochs]
    assert [row["held_out/loss"] for _, row in rows] == losses
    assert [step for step, _ in rows] == [1, 2, 3]


async def test_tensorboard_gets_scalars_and_a_flush_an_epoch():
    writer = FakeWriter()
    trained = await train(TensorBoard(writer), method="dpbgd")
    losses = [(e.epoch + 1, e.average_loss) for e in trained.epochs]
    assert dict(writer.scalars["loss"]) == pytest.approx(dict(losses))
    assert writer.flushes == 3


async def test_wandb_drops_no_row_of_answers_that_came_late():
    run, hosts = FakeRun(), [SimulatedHost() for _ in range(3)]
    options = TrainerOptions(tasks=8, watcher=(WandB(run), lambda *_: None))
    trained = await fit(
        "dpbgd", make_model(), DATA, SimulatedBackend(hosts), epochs=4, fraction=0.5,
        late="queue", options=options,
    )  # fmt: skip
    assert sorted(run.rows) == list(range(1, trained.snapshot.version + 1))
    assert all("epoch/average_loss" in run.rows[step] for step in run.rows)


async def test_rows_go_on_after_a_kill(tmp_path):
    steps = []
    for answers in (7, 8):
        fake = FakeMLflow()
        options = TrainerOptions(tasks=4, folder=tmp_path, watcher=MLflow(fake))
        async with LocalBackend(1) as place:
            trainer = make_trainer(
                "vcasgd", make_model(), DATA, place, options=options, alpha=0.5
            )
            for _ in range(answers):
                await trainer._step()
        steps += [step for step, row in fake.logged if "loss" in row]
    assert steps == list(range(1, 16))


MISSING = [
    (TensorBoard, ("folder",), "tensorboard"),
    (MLflow, (), "mlflow"),
    (WandB, (), "wandb"),
]


@pytest.mark.parametrize(("kind", "arguments", "extra"), MISSING)
def test_missing_package_names_its_extra(kind, arguments, extra, monkeypatch):
    def refuse(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(UsageError, match=rf"stoilo\[{extra}\]|{extra} extra") as caught:
        kind(*arguments)
    assert caught.value.code == "STO-U002"


def lacks(package):
    return importlib.util.find_spec(package) is None


@pytest.mark.skipif(lacks("tensorboard"), reason="extra tensorboard")
async def test_tensorboard_itself_reads_what_was_written(tmp_path):
    watcher = TensorBoard(tmp_path)
    trained = await train(watcher, method="dpbgd")
    watcher.writer.close()
    reading = importlib.import_module(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    found = reading.EventAccumulator(str(tmp_path)).Reload().Scalars("held_out/loss")
    losses = [epoch.held_out.loss for epoch in trained.epochs]
    assert [one.value for one in found] == pytest.approx(losses, rel=1e-6)


@pytest.mark.skipif(lacks("mlflow"), reason="extra mlflow")
async def test_mlflow_itself_keeps_the_rows(tmp_path, monkeypatch):
    mlflow = importlib.import_module("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(tmp_path.as_uri())
    mlflow.set_experiment("trainings")
    with mlflow.start_run() as run:
        trained = await train(MLflow(), method="dpbgd")
    found = mlflow.MlflowClient().get_metric_history(run.info.run_id, "held_out/loss")
    losses = [epoch.held_out.loss for epoch in trained.epochs]
    assert [one.value for one in sorted(found, key=lambda m: m.step)] == losses


@pytest.mark.skipif(lacks("wandb"), reason="extra wandb")
async def test_wandb_itself_keeps_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # it leaves folders there
    wandb = importlib.import_module("wandb")
    run = wandb.init(mode="offline", dir=str(tmp_path), settings={"silent": True})
    trained = await train(WandB(run), method="dpbgd")
    kept = run.summary["held_out/loss"]
    run.finish()
    wandb.teardown()  # its process
    # A row is there once a later one has begun.
    assert kept == trained.epochs[-2].held_out.loss


async def test_page_shows_the_newest_numbers_and_both_curves(tmp_path):
    page = Page(tmp_path / "run.html", title="<b>mine</b>")
    trained = await train(page, method="dpbgd")
    text = page.file.read_text()
    assert "&lt;b&gt;mine" in text
    assert "<b>" not in text
    assert f"{trained.epochs[-1].held_out.loss:.6g}</td>" in text
    plot = read_plot((tmp_path / "run.svg").read_text())
    assert len(plot.findall(f"{SVG}polyline")) == 2
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "run.html", "run.png", "run.svg",
    ]  # fmt: skip


def read_pngs(folder, page, epochs):
    """Return the PNG after each of some versions."""
    found = []
    for version in range(1, 5):
        page.log({"loss": 1 / version} | epochs.get(version, {}), version)
        found.append((folder / "run.png").read_bytes())
    return found


def test_page_paints_as_often_as_it_is_looked_at_and_at_an_epochs_end(tmp_path):
    times = iter([0, 0, 4, 5, 5, 6, 6])
    page = Page(tmp_path / "run.html", clock=lambda: next(times))
    one, two, three, four = read_pngs(tmp_path, page, {4: {"epoch/number": 1}})
    assert one == two
    assert len({one, three, four}) == 3


def test_plot_places_points_between_the_axes():
    plot = read_plot(draw({"loss": [(0, 1.0), (5, 0.5), (10, 0.0)]}, "steps"))
    line = plot.find(f"{SVG}polyline")
    assert line.get("points") == "60.0,20.0 280.0,160.0 500.0,300.0"
    assert "10 steps" in [text.text for text in plot.findall(f"{SVG}text")]


@pytest.mark.parametrize(
    "points", [[], [(1, math.nan)], [(0, 0.0)], [(1, math.inf), (2, 1.0)]]
)
def test_plot_of_what_is_not_finite_is_a_plot(points):
    text = draw({"a<b": points})
    assert read_plot(text).tag == f"{SVG}svg"
    assert not {"nan", "inf"} & set(text.replace(",", " ").split())
