"""`learn.parallel`: every mix through the driver, on threads and simulated hosts."""

import csv
import math

import numpy as np
import pytest

from stoilo import learn
from stoilo.core.errors import InternalError, UsageError
from stoilo.learn.core.tensors import scale
from stoilo.learn.methods.rules import Clip
from tests.support.learning import load_digits

SIZE = 320


def softmax(parameters, x, y):
    z = x @ parameters["w"]
    z = z - z.max(axis=1, keepdims=True)
    logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    slope = np.exp(logs)
    slope[np.arange(len(y)), y] -= 1.0
    return -float(logs[np.arange(len(y)), y].sum()), {"w": x.T @ slope}


def negated(parameters, x, y):
    loss, found = softmax(parameters, x, y)
    return -loss, {"w": -found["w"]}


def guess(parameters, x):
    return (x @ parameters["w"]).argmax(axis=1)


MODEL = learn.ArrayModel({"w": np.zeros((64, 10))}, softmax, predict=guess)
DIGITS = load_digits()
DATA = DIGITS.images[:SIZE], DIGITS.labels[:SIZE]
HELD_OUT = DIGITS.test_images, DIGITS.test_labels
SGD = learn.Sgd(0.5)


async def train(place=None, model=MODEL, data=DATA, *, options=None, **mix):
    wanted = {"nodes": 4, "epochs": 2, "block_size": 10, "rule": SGD, **mix}
    options = options or learn.TrainerOptions(held_out=HELD_OUT)
    return await learn.parallel(model, data, place, options=options, **wanted)


def train_serially(batch=40, epochs=2):
    w = np.zeros((64, 10))
    for start in [*range(0, SIZE, batch)] * epochs:
        x, y = (array[start : start + batch] for array in DATA)
        w = w - 0.5 * softmax({"w": w}, x, y)[1]["w"] / batch
    return w


def host(**more):
    return learn.SimulatedHost(samples_per_s=10.0, poll_s=0.1, **more)


MIXES = {
    "bsp": {},
    "k of n": {"wait_for": 3},
    "ssp": {"sync": "ssp", "ahead": 2},
    "asp": {"sync": "asp", "rule": learn.Sgd(0.2)},
    "dc-asgd": {"sync": "dc-asgd", "rule": learn.Sgd(0.1)},
    "local sgd": {"operator": "parameters", "period": 4, "rate": 0.5, "rule": "sgd"},
    "parameters": {"operator": "parameters", "rate": 0.5, "rule": "sgd"},
    "federated": {"operator": "federated", "rate": 0.5, "rule": "sgd"},
    "gossip": {"operator": "gossip", "rate": 0.5, "rule": "sgd"},
    "double buffering": {"operator": "double buffering"},
    "two owners": {"redundancy": 2, "block_size": 7},
    "duplicated": {"assignment": "duplicate", "redundancy": 2},
    "regions, by a rule": {"regions": 2, "robust": learn.Mean()},
    "codec a layer": {"codec": {"w": "int8"}, "redundancy": 2, "block_size": 7},
    "unequal": {"ratios": (1.0, 2.0, 3.0, 4.0)},
    "adam": {"rule": learn.Adam(0.03)},
}


@pytest.mark.parametrize("name", MIXES)
async def test_mix_learns_on_threads_and_says_its_loss_and_accuracy(name):
    found = await train(**{"epochs": 4, **MIXES[name]})
    assert found.accuracy > 0.75
    assert found.loss < 1.2
    assert found.disputes == ()


@pytest.mark.parametrize("name", MIXES)
async def test_mix_learns_on_hosts_that_lose_tasks(name):
    place = learn.SimulatedBackend([host(loss=0.1)] * 5, deadline_s=30.0, tries=20)
    found = await train(place, **{"epochs": 4, **MIXES[name]})
    assert found.accuracy > 0.75


@pytest.mark.parametrize(
    "rule", ["sgd", "adam", "adagrad", "rmsprop", "adadelta", "decay"]
)
async def test_each_named_rule_lowers_the_loss(rule):
    found = await train(rule=rule, epochs=3)
    assert found.loss < math.log(10)


@pytest.mark.parametrize("nodes", [1, 2, 4, 8])
async def test_any_number_of_nodes_equals_serial_batches(nodes):
    found = await train(nodes=nodes, block_size=40 // nodes, shuffled=False)
    np.testing.assert_allclose(found.model["w"], train_serially(), rtol=1e-9)


async def test_other_batches_would_not_equal_them():
    found = await train(nodes=4, block_size=8, shuffled=False)
    assert not np.allclose(found.model["w"], train_serially(), rtol=1e-3)


async def test_ascent_of_the_negated_loss_is_descent():
    model = learn.ArrayModel({"w": np.zeros((64, 10))}, negated, predict=guess)
    up, down = await train(model=model, operator="ascent"), await train()
    assert (up.model["w"] == down.model["w"]).all()


def liar(value):
    return {**value, "tensors": scale(value["tensors"], -1.0)}


async def measure_harm(who, **mix):
    """How far a liar among five hosts moves the weights, and how often he is named."""
    hosts = [host(cheat=liar if one == who else None) for one in range(5)]
    mix |= {"shuffled": False, "options": learn.TrainerOptions(home_checks=0.0)}
    found = await train(learn.SimulatedBackend(hosts), **mix)
    honest = (await train(**mix)).model["w"]
    away = np.linalg.norm(found.model["w"] - honest) / np.linalg.norm(honest)
    return away, len(found.disputes)


@pytest.mark.parametrize("who", range(5))
async def test_liar_of_five_hosts_is_named_where_another_computes_the_same(who):
    # Where chance gives him both copies of a block he stands unopposed.
    away, named = await measure_harm(who, redundancy=2, block_size=7)
    assert away < 0.15
    assert named > 20


@pytest.mark.parametrize("who", range(5))
async def test_liar_of_five_hosts_is_not_named_with_one_owner_and_does_harm(who):
    away, named = await measure_harm(who)
    assert away > 0.3
    assert named == 0


async def test_answers_that_are_cut_agree_all_the_same():
    options = learn.TrainerOptions(clip=Clip(factor=0.5), held_out=HELD_OUT)
    found = await train(options=options, redundancy=2, block_size=7)
    assert found.trained.tally.shortened > 10
    assert found.disputes == ()


def die(who):
    away = [learn.Spell(2.0, math.inf)]
    return [host(away=away if one == who else ()) for one in range(4)]


@pytest.mark.parametrize("sync", ["asp", "dc-asgd", "ssp"])
@pytest.mark.parametrize("who", range(4))
async def test_host_that_dies_never_blocks_those_that_wait_for_nobody(sync, who):
    place = learn.SimulatedBackend(die(who), deadline_s=1e6)
    await train(place, sync=sync, timeout_s=10.0, rule=learn.Sgd(0.1))
    assert place.now() < 200.0


async def test_step_is_rescued_from_a_host_that_dies():
    place = learn.SimulatedBackend(die(1), deadline_s=1e6)
    found = await train(place, timeout_s=10.0, shuffled=False)
    assert place.now() < 200.0
    np.testing.assert_allclose(found.model["w"], train_serially(), rtol=1e-9)


async def test_rescue_in_vain_ends_with_a_named_error():
    gone = [host(away=[learn.Spell(2.0, math.inf)])] * 4
    with pytest.raises(InternalError, match="STO-T021"):
        await train(learn.SimulatedBackend(gone, deadline_s=1e6), timeout_s=10.0)


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


async def test_files_of_each_node_tell_every_answer_and_the_epochs(tmp_path):
    options = learn.TrainerOptions(held_out=HELD_OUT, folder=tmp_path)
    found = await train(options=options, title="digits")
    names = {path.name for path in found.files}
    each = {
        f"{kind}-digits-N({node}).csv" for kind in ("TR", "EV") for node in range(4)
    }
    assert names == each | {"MODEL-digits.safetensors"}
    assert len(read(tmp_path / "TR-digits-N(2).csv")) == 16  # 2 epochs of 8 batches
    last = read(tmp_path / "EV-digits-N(2).csv")[-1]
    assert (float(last["loss"]), float(last["accuracy"])) == (
        found.loss,
        found.accuracy,
    )


async def test_files_are_reclaimed_while_and_after_somebody_trains(tmp_path):
    options = learn.TrainerOptions(folder=tmp_path)
    mix = learn.ParallelSettings(4, epochs=1, block_size=10, rule=SGD)
    async with learn.ParallelTrainer(
        None, MODEL, DATA, mix, options=options
    ) as trainer:
        await anext(aiter(trainer))
        partial = learn.reclaim(tmp_path)
    assert [path.name[:3] for path in partial] == ["TR-"]
    assert any(path.name.startswith("MODEL") for path in learn.reclaim(tmp_path))


@pytest.mark.parametrize(
    "name", ["bsp", "two owners", "double buffering", "asp", "ssp"]
)
async def test_killed_training_goes_on_to_the_same_end(name, tmp_path):
    few = DATA[0][:84], DATA[1][:84]
    mix = {"nodes": 4, "epochs": 1, "block_size": 7, "rule": SGD, **MIXES[name]}

    def open_trainer(folder=None):
        options = learn.TrainerOptions(folder=folder, in_flight=1)
        settings = learn.ParallelSettings(**mix)
        place = learn.LocalBackend(1)
        return learn.ParallelTrainer(place, MODEL, few, settings, options=options)

    async with open_trainer(tmp_path) as trainer:
        updates = aiter(trainer)
        for _ in range(5):
            await anext(updates)
    async with open_trainer(tmp_path) as trainer, open_trainer() as whole:
        ours, theirs = await trainer.train(), await whole.train()
    assert len(ours.history) == len(theirs.history)
    assert (ours.model["w"] == theirs.model["w"]).all()


@pytest.mark.parametrize(
    "mix",
    [
        {"sync": "eventually"},
        {"operator": "sideways"},
        {"rule": "guess"},
        {"sync": "asp", "operator": "double buffering"},
        {"sync": "asp", "wait_for": 2},
        {"sync": "ssp", "robust": learn.Mean()},
        {"operator": "federated", "regions": 2},
        {"period": 2},
        {"operator": "gossip"},
        {"wait_for": 9},
        {"agree": 2},
        {"title": "../elsewhere"},
        {"assignment": "duplicate", "redundancy": 3},
        {"data": learn.split(*DATA, 3)},
    ],
)
async def test_mix_that_makes_no_sense_is_refused(mix):
    with pytest.raises(UsageError, match="STO-T040"):
        await train(**mix)


async def test_blocks_by_label_learn_less_in_local_passes_than_slices():
    wanted = {"operator": "federated", "rate": 0.5, "rule": "sgd"}
    by_label, slices = await train(disorder=0.0, **wanted), await train(**wanted)
    assert by_label.loss > slices.loss


async def test_parts_of_labels_are_dealt_by_the_share_of_disorder():
    def open_trainer(disorder):
        mix = learn.ParallelSettings(5, disorder=disorder)
        return learn.ParallelTrainer(None, MODEL, DATA, mix)

    kinds = [
        [len(np.unique(part.y)) for part in open_trainer(one).parts]
        for one in (0.0, 1.0)
    ]
    assert max(kinds[0]) < 5 < min(kinds[1])
