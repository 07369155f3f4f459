"""Every trainer on threads and simulated volunteers, by `fit`; what each run reports."""

import subprocess
import sys

import numpy as np
import pytest

import stoilo
from stoilo.core.errors import UsageError
from stoilo.learn import (
    METHODS,
    Adam,
    CoordinateMedian,
    LocalBackend,
    LocalWork,
    LogisticSettings,
    LogisticTrainer,
    Part,
    SandblasterTrainer,
    Sgd,
    SimulatedBackend,
    SimulatedHost,
    SynchronousSettings,
    SynchronousTrainer,
    TrainerOptions,
    VCASGDTrainer,
    evaluate,
    fit,
    make_trainer,
    split,
)
from tests.support import points
from tests.support.points import make_model, make_samples, softmax_loss

DATA = make_samples()
WISHES = {**points.WISHES, "downpour": {"optimizer": Adam(0.05)}}


def four_hosts(**changes):
    return SimulatedBackend([SimulatedHost(**changes) for _ in range(4)])


def hosts_with_losses():
    return four_hosts(loss=0.1, stall=0.2)


def wish(method, **changes):
    given = {"epochs": 5, "batch": 10, **WISHES[method]}
    if "optimizer" in given:
        given["optimizer"] = Adam(0.05)
    return {**given, **changes}


def loss_of(snapshot):
    return softmax_loss(snapshot.parameters, *DATA)[0] / len(DATA[0])


def test_every_method_has_a_wish():
    assert set(WISHES) == set(METHODS)


@pytest.mark.parametrize("place", [lambda: None, LocalBackend, hosts_with_losses])
@pytest.mark.parametrize("method", METHODS)
async def test_method_trains_everywhere(method, place):
    trained = await fit(
        method, make_model(), DATA, place(), held_out=DATA, **wish(method)
    )
    assert loss_of(trained.snapshot) < 0.6 * np.log(3)
    assert trained.epochs[-1].held_out.loss == pytest.approx(
        loss_of(trained.snapshot), rel=1e-9
    )
    assert sum(e.accepted_tasks for e in trained.epochs) == sum(
        update.applied for update in trained.history.updates
    )


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"sandblaster", "diloco"}))
async def test_without_a_rate_nothing_is_learned(method):
    """The control of the test above: its loss does not fall by itself."""
    given = wish(method, rate=1e-12)
    if "optimizer" in given:
        given["optimizer"] = Sgd(1e-12)
    trained = await fit(method, make_model(), DATA, **given)
    assert loss_of(trained.snapshot) == pytest.approx(np.log(3), rel=1e-3)


def flip(value):
    tensors = {name: -1e4 * array for name, array in value["tensors"].items()}
    return {**value, "tensors": tensors}


def hosts_with_a_cheat():
    honest = [SimulatedHost() for _ in range(7)]
    return SimulatedBackend([*honest, SimulatedHost(cheat=flip)])


@pytest.mark.parametrize("method", ["dpbgd", "vcasgd", "fedavg", "downpour", "ssp"])
async def test_cheat_among_eight_does_little_harm_unless_answers_count_in_full(method):
    ends = []
    for options in (
        TrainerOptions(home_checks=0.0),
        TrainerOptions(clip=None, home_checks=0.0),
    ):
        given = wish(method, options=options, optimizer=Sgd(0.3))
        given |= {"alpha": 0.9, "epochs": 20} if method == "vcasgd" else {}
        model, place = make_model(), hosts_with_a_cheat()
        trained = await fit(method, model, DATA, place, **given)
        ends.append(loss_of(trained.snapshot))
    assert ends[0] < 0.6 * np.log(3)
    assert not ends[1] < 10.0 * np.log(3)


async def test_robust_rule_holds_where_each_answer_counts_in_full():
    ends = []
    for rule in (CoordinateMedian(), None):
        trained = await fit(
            "dpbgd", make_model(), DATA, hosts_with_a_cheat(), rule=rule,
            optimizer=Sgd(0.3), options=TrainerOptions(clip=None, home_checks=0.0),
        )  # fmt: skip
        ends.append(loss_of(trained.snapshot))
    assert ends[0] < 0.6 * np.log(3)
    assert ends[1] > 10.0 * np.log(3)


async def test_updates_of_vcasgd_can_be_followed():
    model = make_model()
    async with VCASGDTrainer(
        None, model, DATA, epochs=2, options=TrainerOptions(tasks=4)
    ) as trainer:
        assert trainer.last_epoch_metrics() is None
        seen = [update async for update in trainer]
    assert [update.accepted_tasks for update in seen] == [1, 2, 3, 4] * 2
    assert [update.snapshot.version for update in seen] == list(range(1, 9))
    assert seen[-1].model["w"] is trainer.snapshot.parameters["w"]
    assert trainer.last_epoch_metrics().epoch == 1
    assert trainer.last_epoch_metrics().accepted_tasks == 4
    assert np.isfinite([update.loss for update in seen]).all()


def test_vcasgd_takes_the_published_defaults():
    settings = VCASGDTrainer(None, make_model(), DATA).run.method.settings
    assert (settings.alpha, settings.local.steps) == (0.95, 1)
    assert (settings.pull, settings.mode) == ("latest", "mix")


async def test_vcasgd_with_one_part_and_alpha_zero_is_serial_training():
    part = Part(*DATA)
    local = LocalWork(0.1)
    async with VCASGDTrainer(
        None, make_model(), [part], alpha=0.0, local=local, local_steps=3, epochs=1
    ) as trainer:
        trained = await trainer.train()
    serial = dict(make_model().parameters)
    for _ in range(3):
        _, slope = softmax_loss(serial, *DATA)
        serial = {n: a - 0.1 * slope[n] / len(part) for n, a in serial.items()}
    np.testing.assert_allclose(trained.model["w"], serial["w"], atol=1e-12)


async def test_epochs_are_trained_one_by_one_and_end():
    async with make_trainer("dpbgd", make_model(), DATA, epochs=2) as trainer:
        first, second = await trainer.train_epoch(), await trainer.train_epoch()
        with pytest.raises(UsageError, match="STO-T081"):
            await trainer.train_epoch()
    assert second.average_loss < first.average_loss
    assert (first.samples, first.accepted_tasks, first.discarded_tasks) == (120, 8, 0)


async def test_late_answers_are_dropped_and_counted():
    settings = SynchronousSettings(epochs=3, fraction=0.75)
    place = four_hosts(stall=0.3, stall_times=1.5, samples_per_s=10.0)
    async with SynchronousTrainer(
        place, make_model(), DATA, settings, Sgd(0.3)
    ) as trainer:
        trained = await trainer.train()
    assert [epoch.accepted_tasks for epoch in trained.epochs] == [6, 6, 6]
    assert loss_of(trained.snapshot) < np.log(3)


async def test_sandblaster_reaches_the_minimum_of_the_penalised_loss():
    from scipy.optimize import minimize  # noqa: PLC0415 - half a second

    def value(vector):
        w = {"w": vector[:12].reshape(4, 3), "b": vector[12:]}
        total, slope = softmax_loss(w, *DATA)
        flat = np.concatenate([slope["w"].ravel(), slope["b"]])
        return total / 120 + 0.05 * vector @ vector, flat / 120 + 0.1 * vector

    best = minimize(value, np.zeros(15), jac=True, tol=1e-9).fun
    settings = stoilo.learn.SandblasterSettings(penalty=0.1)
    async with SandblasterTrainer(None, make_model(), DATA, settings) as trainer:
        await trainer.train()
    assert trainer.run.method.value == pytest.approx(best, rel=1e-7)
    assert trainer.run.tally.shortened == 0


@pytest.mark.parametrize("mode", ["dgd", "ipm", "downpour", "agd"])
async def test_logistic_regression_learns_in_each_mode(mode):
    x, y = DATA[0], (DATA[1] == 0).astype(float)
    settings = LogisticSettings(mode, rounds=5, rate=0.01)
    async with LogisticTrainer(None, (x, y), settings) as trainer:
        trained = await trainer.train()
    right = ((x @ trained.model["theta"] > 0.0) == (y > 0.5)).mean()
    assert right > 0.8
    assert len(trained.epochs) == 5


async def test_trainer_of_a_killed_process_goes_on_from_its_folder(tmp_path):
    async def start():
        return make_trainer(
            "vcasgd", make_model(), DATA, LocalBackend(1), epochs=2,
            options=TrainerOptions(tasks=4, folder=tmp_path),
        )  # fmt: skip

    killed = await start()
    for _ in range(3):
        await killed._step()
    await killed.run.backend.close()  # and nothing else: as if it were killed
    again = await start()
    async with again.run.backend, again:
        await again.train()
    assert again.snapshot.version == 8
    assert len(again.run.history.updates) == 8  # those before the kill, too


def test_fit_names_methods_and_models_that_are_not():
    with pytest.raises(UsageError, match="STO-T040"):
        make_trainer("adam", make_model(), DATA)
    with pytest.raises(UsageError, match="STO-T040"):
        make_trainer("dpbgd", object(), DATA)


def test_array_models_are_trained_without_torch():
    program = (
        "import asyncio, sys, stoilo\n"
        "assert 'numpy' not in sys.modules\n"
        "from tests.support.points import make_model, make_samples\n"
        "job = stoilo.learn.fit('vcasgd', make_model(), make_samples(), epochs=1)\n"
        "asyncio.run(job)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_evaluation_does_not_depend_on_its_batches():
    model, part = make_model(), Part(*DATA)
    found = [evaluate(model, model.first(), part, batch) for batch in (7, 120)]
    assert found[0].loss == pytest.approx(found[1].loss, rel=1e-12)
    assert found[0].loss == pytest.approx(np.log(3))
    assert found[0].accuracy is None


def test_parts_that_are_given_stay_as_they_are():
    parts = split(*DATA, 3)
    trainer = make_trainer("fedavg", make_model(), parts)
    assert trainer.parts == parts
