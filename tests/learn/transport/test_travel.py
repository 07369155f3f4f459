"""Orders that ask for a codec, answers that come in it, and runs that use it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from stoilo.client.capture import capture_task
from stoilo.core.errors import InternalError, TrustError
from stoilo.learn import fit, make_trainer
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost
from stoilo.learn.core.data import split
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.core.orders import Order, Snapshot
from stoilo.learn.core.tensors import forms_of
from stoilo.learn.driver.acceptance import Expectation
from stoilo.learn.driver.codecs import (
    Compressed,
    Half,
    OneBit,
    PerLayer,
    PowerSGD,
    Quantised,
    Raw,
    Remainder,
    Ternary,
    TopK,
)
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.driver.transport import ask, asked, count_bytes, receive
from stoilo.learn.kernels import array_models
from stoilo.learn.methods.optimizers import Sgd
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from stoilo.learn.trainers.trainer import TrainerOptions
from stoilo.ml import DPBGDOptions, DPBGDTrainer
from stoilo.policies.gate import GateRequest, judge
from tests.support.points import make_samples

CODECS = [
    Raw(), Compressed(), Ternary(16), Half(), Half("float16"), Quantised(4, "l2", 16),
    OneBit(16), TopK(0.5), PowerSGD(1), Remainder(TopK(0.2), Ternary(16)),
    PerLayer((("b", Raw()),), OneBit(16)),
]  # fmt: skip
START = {"w": np.zeros((4, 3)), "b": np.zeros(3)}


def softmax_loss(parameters, x, y):
    z = x @ parameters["w"] + parameters["b"]
    z = z - z.max(axis=1, keepdims=True)
    logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    slope = np.exp(logs)
    slope[np.arange(len(y)), y] -= 1.0
    loss = -float(logs[np.arange(len(y)), y].sum())
    return loss, {"w": x.T @ slope, "b": slope.sum(axis=0)}


@pytest.fixture
def samples():
    return make_samples()


@pytest.fixture
def model():
    return ArrayModel(START, softmax_loss)


def make_order(kernel="gradient", base=0.5, **settings):
    parameters = {name: array + base for name, array in START.items()}
    return Order("e0/p0", kernel, Snapshot(3, parameters), 0, 120, settings)


LOCAL = {"steps": 3, "batch": 0, "rate": 0.1, "seed": 1, "give": "parameters"}


def answer(order, samples):
    """Return what a volunteer sends."""
    return getattr(array_models, order.kernel)(
        {
            "parameters": dict(order.snapshot.parameters),
            "buffers": {},
            "data": {"x": samples[0], "y": samples[1]},
            "rows": None,
            "settings": dict(order.settings),
            "version": order.snapshot.version,
            "function": softmax_loss,
        }
    )


def arrived(order, samples):
    forms = forms_of(order.snapshot.parameters)
    return receive(answer(order, samples), order, forms)["tensors"]


@pytest.mark.parametrize("order", [make_order(), make_order("local_steps", **LOCAL)])
def test_lossless_answers_arrive_as_computed(order, samples):
    plain, compressed = arrived(order, samples), ask(order, Compressed())
    for name, array in arrived(compressed, samples).items():
        np.testing.assert_array_equal(array, plain[name])


def test_ternary_parameters_are_the_version_and_a_way_from_it(samples):
    order = make_order("local_steps", **LOCAL)
    base, plain = order.snapshot.parameters["w"], arrived(order, samples)["w"]
    way = arrived(ask(order, Ternary(16)), samples)["w"] - base
    assert np.abs(way).max() == pytest.approx(np.abs(plain - base).max())


def test_copies_of_one_order_draw_alike_and_other_orders_do_not():
    seeds = [
        ask(order, Ternary()).settings["transport"]["seed"]
        for order in (make_order(), make_order(), make_order(seed=4))
    ]
    assert seeds[0] == seeds[1] != seeds[2]


def test_orders_without_arrays_and_raw_ones_stay_as_they_are():
    evaluation = make_order("evaluate")
    assert ask(evaluation, Ternary()) is evaluation
    order = make_order()
    assert ask(order, Raw()) is order


def frames(order, samples, **changes):
    given = answer(order, samples)
    return {**given, "tensors": {**given["tensors"], **changes}}


HOSTILE = {
    "not encoded": {"w": START["w"]},
    "further name": {"v": np.zeros(8, np.uint8)},
    "list": {"w": [0] * 8},
    "two dimensions": {"w": np.zeros((2, 5), np.uint8)},
    "other type": {"w": np.zeros(8, np.int8)},
}


@pytest.mark.parametrize("transport", CODECS[1:])
@pytest.mark.parametrize("case", HOSTILE)
def test_answer_that_is_not_encoded_as_asked_is_refused(case, transport, samples):
    order = ask(make_order(), transport)
    hostile = frames(order, samples, **HOSTILE[case])
    with pytest.raises(TrustError, match="STO-T010"):
        receive(hostile, order, forms_of(START))


@pytest.mark.parametrize("raw", [None, [1], {"tensors": 3}, {}])
def test_what_is_no_answer_is_refused_or_left_to_acceptance(raw):
    order = ask(make_order(), Compressed())
    try:
        assert receive(raw, order, forms_of(START)) is raw
    except TrustError as error:
        assert error.code == "STO-T010"
    assert count_bytes(raw) == 0


def make_run(model, parts, transport, backend, **changes):
    settings = SynchronousSettings(epochs=6, block=10)
    method = Synchronous(model.first(), [len(p) for p in parts], Sgd(0.5), settings)
    return Run(
        method, model, parts, backend, RunSettings(transport=transport, **changes)
    )


async def train(model, samples, transport):
    parts = split(*samples, 6)
    async with (
        LocalBackend() as backend,
        make_run(model, parts, transport, backend) as run,
    ):
        end = await run.finish()
    return end.parameters, run.tally


async def test_compressed_run_ends_where_the_raw_one_does(model, samples):
    raw, _ = await train(model, samples, Raw())
    compressed, tally = await train(model, samples, Compressed())
    np.testing.assert_array_equal(raw["w"], compressed["w"])
    assert tally.refused == 0


async def test_ternary_run_learns_with_a_fraction_of_the_bytes(model, samples):
    _, raw = await train(model, samples, Raw())
    end, tally = await train(model, samples, Ternary(16))
    first = softmax_loss(START, *samples)[0]
    assert softmax_loss(end, *samples)[0] < 0.4 * first
    assert (tally.refused, tally.shortened) == (0, 0)
    assert tally.received_bytes < raw.received_bytes / 5


def spoil(value):
    frame = value["tensors"]["w"].copy()
    frame[-1] = 255
    return {**value, "tensors": {**value["tensors"], "w": frame}}


class Careless(SimulatedBackend):
    """A server that looks at no answer's form."""

    async def submit(self, job):
        return await super().submit(replace(job, check=None))


@pytest.mark.parametrize("server", [SimulatedBackend, Careless])
async def test_spoiled_frames_are_ordered_again_and_nothing_of_them_is_used(
    server, model, samples
):
    parts = split(*samples, 6)
    honest, _ = await train(model, samples, Ternary(16))
    backend = server([SimulatedHost(), SimulatedHost(), SimulatedHost(cheat=spoil)])
    run = make_run(model, parts, Ternary(16), backend, tries=50)
    async with run:
        end = await run.finish()
    np.testing.assert_allclose(end.parameters["w"], honest["w"], atol=1e-12)
    assert backend.faults[:2] == [0, 0] != backend.faults[1:]
    assert (run.tally.refused > 0) is (server is Careless)


async def test_run_ends_when_every_frame_is_spoiled(model, samples):
    backend = Careless([SimulatedHost(cheat=spoil)])
    run = make_run(model, split(*samples, 2), Ternary(16), backend, tries=2)
    with pytest.raises(InternalError, match="STO-T010"):
        await run.finish()


async def test_killed_run_goes_on_with_what_its_orders_asked_for(
    model, samples, tmp_path
):
    parts = split(*samples, 6)
    run = make_run(model, parts, Ternary(16), LocalBackend(), folder=tmp_path)
    await run.start()
    await run.step()
    await run.backend.close()
    again = make_run(model, parts, Raw(), LocalBackend(), folder=tmp_path)
    async with again:
        await again.finish()
    await again.backend.close()
    assert again.tally.refused == 0


@pytest.mark.parametrize("codec", CODECS[2:], ids=str)
async def test_run_learns_in_every_codec_and_is_resumed_by_its_orders(
    codec, model, samples, tmp_path
):
    parts = split(*samples, 6)
    run = make_run(model, parts, codec, LocalBackend(), folder=tmp_path)
    await run.start()
    await run.step()
    await run.backend.close()
    again = make_run(model, parts, codec, LocalBackend(), folder=tmp_path)
    async with again:
        end = await again.finish()
    await again.backend.close()
    assert again.tally.refused == 0
    first = softmax_loss(START, *samples)[0]
    assert softmax_loss(end.parameters, *samples)[0] < 0.5 * first


@pytest.mark.parametrize("codec", CODECS[2:], ids=str)
def test_parameters_travel_as_the_way_from_their_version(codec, samples):
    order = make_order("local_steps", **LOCAL)
    plain, found = arrived(order, samples), arrived(ask(order, codec), samples)
    base = order.snapshot.parameters
    way = np.linalg.norm(plain["w"] - base["w"])
    assert (
        np.linalg.norm(found["w"] - plain["w"]) < 1.5 * way < np.linalg.norm(base["w"])
    )


METHODS = ["vcasgd", "downpour", "sandblaster", "sync", "fedavg", "diloco"]


@pytest.mark.parametrize("transport", ["compressed", "ternary"])
@pytest.mark.parametrize("method", METHODS)
async def test_every_method_takes_the_option(method, transport, model, samples):
    trained = await fit(
        method,
        model,
        split(*samples, 3),
        epochs=2,
        options=TrainerOptions(transport=transport),
    )
    assert trained.tally.refused == 0
    assert trained.epochs[-1].average_loss < np.log(3.0)


async def test_torch_trainer_takes_the_option(samples):
    x, y = samples[0].astype(np.float32), samples[1]
    trainer = DPBGDTrainer(
        None, nn.Linear(4, 3), nn.functional.cross_entropy,
        torch.optim.SGD, {"lr": 0.3}, (x, y),
        options=DPBGDOptions(tasks=3, transport="ternary"),
    )  # fmt: skip
    async with trainer:
        losses = [(await trainer.train_epoch())[1] for _ in range(4)]
    assert losses[-1] < losses[0]


async def test_estimate_counts_what_travels(model, samples):
    found = []
    for transport in ("raw", "ternary"):
        options = TrainerOptions(tasks=2, transport=transport)
        async with make_trainer("sync", model, samples, options=options) as trainer:
            found.append(trainer.estimate().upload_s)
    assert found[1] < found[0] / 10


def expect(order):
    return Expectation(3, 120, forms_of(order.snapshot.parameters), {})


@pytest.mark.parametrize("transport", CODECS)
def test_servers_check_decodes_what_was_encoded(transport, samples):
    order = ask(make_order(), transport)
    check = expect(order).validator(asked(order))
    good = answer(order, samples)
    assert check(good)
    assert not check({**good, "tensors": {**good["tensors"], "v": np.zeros(3)}})
    assert not any(check(value) for value in (None, {}, {**good, "tensors": None}))


@pytest.mark.parametrize("transport", CODECS[1:])
@pytest.mark.parametrize("case", HOSTILE)
def test_servers_check_refuses_what_is_not_encoded_as_asked(case, transport, samples):
    order = ask(make_order(), transport)
    check = expect(order).validator(asked(order))
    assert not check(frames(order, samples, **HOSTILE[case]))


def test_servers_check_looks_into_frames_of_the_right_size(samples):
    order = ask(make_order(), Ternary(16))
    check = expect(order).validator(asked(order))
    assert not check(spoil(answer(order, samples)))


@pytest.mark.parametrize(("change", "wanted"), [(1e-9, True), (1e-2, False)])
def test_copies_in_other_last_bits_are_alike_where_nothing_is_lost(
    change, wanted, samples
):
    order = ask(make_order(), Compressed())
    alike = expect(order).comparator(asked(order))
    left = answer(order, samples)
    right = answer(order, (samples[0] * (1.0 + change), samples[1]))
    assert {**left, "loss_sum": 0.0, "correct": 0} != right
    assert alike(left, {**right, "loss_sum": left["loss_sum"]}) is wanted


@pytest.mark.parametrize("codec", [Ternary(), OneBit(), TopK(), Remainder(), PowerSGD(),
                                   PerLayer((("w", OneBit()),))], ids=str)  # fmt: skip
def test_answers_in_which_a_last_bit_turns_into_more_are_compared_exactly(codec):
    order = ask(make_order(), codec)
    assert expect(order).comparator(asked(order)) is None


@pytest.mark.parametrize("codec", [Half(), PerLayer((("w", Half()),))], ids=str)
def test_rounded_answers_are_alike_in_other_last_bits(codec, samples):
    order = ask(make_order(), codec)
    alike = expect(order).comparator(asked(order))
    left = answer(order, samples)
    right = answer(order, (samples[0] * (1.0 + 1e-9), samples[1]))
    assert alike(left, {**right, "loss_sum": left["loss_sum"]})
    far = answer(order, (samples[0] * 1.1, samples[1]))
    assert not alike(left, {**far, "loss_sum": left["loss_sum"]})


@pytest.mark.parametrize("transport", CODECS)
def test_gate_admits_the_validators_that_travel_with_an_order(transport):
    order = ask(make_order(), transport)
    check, alike = (
        expect(order).validator(asked(order)),
        expect(order).comparator(asked(order)),
    )
    task = capture_task(array_models.gradient, {}, check, alike)
    verdict = judge(
        GateRequest(
            task.task_module.encode(),
            validator=task.validator_module.encode(),
            entry=task.entry,
        )
    )
    assert verdict.admitted, verdict.findings
    assert verdict.lowest_level == "numeric"
