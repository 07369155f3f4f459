"""Ways in which a training was ended, stopped or spoiled, each found by attacking it."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from stoilo.client.capture.arguments import StoredValue
from stoilo.client.results import user_error
from stoilo.core.errors import InternalError, TrustError, UnreachableError, UsageError
from stoilo.learn.backends import Backend, Handle, JobEnd
from stoilo.learn.backends.local import LocalBackend, run_job
from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost
from stoilo.learn.core.data import split
from stoilo.learn.core.models import ArrayModel, TorchModel
from stoilo.learn.core.orders import Order, Reply, Snapshot, Update
from stoilo.learn.driver import in_flight
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.methods.base import LocalWork, Staleness
from stoilo.learn.methods.buffers import keep_buffers
from stoilo.learn.methods.downpour import Downpour, DownpourSettings
from stoilo.learn.methods.optimizers import Adagrad, Sgd
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from stoilo.learn.methods.vcasgd import VcasgdSettings
from stoilo.learn.trainers.dpbgd import DPBGDOptions, DPBGDTrainer

LOSS = nn.functional.cross_entropy


def make_model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def make_data():
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    return x.numpy(), x[:, :3].argmax(1).numpy()


def square(parameters, x, y):
    rest = x @ parameters["w"] - y
    return float((rest**2).sum()), {"w": 2 * x.T @ rest}


def make_run(backend, folder=None, **changes):
    model = ArrayModel({"w": np.zeros(6)}, square)
    x, y = make_data()
    parts = split(x.astype(float), y.astype(float), 4)
    method = Synchronous(
        model.first(), [15] * 4, Sgd(0.01), SynchronousSettings(epochs=2)
    )
    return Run(method, model, parts, backend, RunSettings(folder=folder, **changes))


async def test_batchnorm_model_goes_on_from_its_checkpoint(tmp_path):
    options = DPBGDOptions(tasks=2, folder=tmp_path)
    for _ in range(2):
        async with DPBGDTrainer(
            None, make_model(), LOSS, torch.optim.Adam, {"lr": 0.01}, make_data(),
            options=options,
        ) as trainer:  # fmt: skip
            model, _ = await trainer.train_epoch()
    assert int(model[1].num_batches_tracked) == 2


def test_task_is_the_same_for_every_version_of_a_module():
    module = make_model()
    model = TorchModel(module, LOSS)
    with torch.no_grad():
        module[0].weight.fill_(7.0)
    shape = model.constants()["model"]
    assert not any(bool(p.any()) for p in shape.parameters())
    assert shape is model.constants()["model"]
    assert float(model.first().parameters["0.weight"][0, 0]) == 7.0


def spoil(value):
    return {**value, "loss_sum": math.nan}


async def test_run_that_ended_in_an_error_goes_on_when_its_cause_is_gone(tmp_path):
    backend = SimulatedBackend([SimulatedHost(cheat=spoil)])
    with pytest.raises(InternalError, match="STO-T021"):
        async with make_run(backend, tmp_path, patience=9) as run:
            await run.finish()
    async with LocalBackend() as honest, make_run(honest, tmp_path) as run:
        end = await run.finish()
    assert end.version == 2


class Memory:
    """A server: the same key is the same task and has the same ending, also a lie."""

    def __init__(self, lie=lambda _: None):
        self.lie, self.endings, self.queue = lie, {}, []
        self.fresh, self.refused = 0, []

    async def put(self, value):
        stored, _ = StoredValue.of(value)
        return Handle(stored.digest, stored.size, value)

    async def submit(self, job):
        if job.key not in self.endings:
            self.fresh += 1
            self.endings[job.key] = self.lie(job) or run_job(job)
        self.queue += [job.key] if job.key not in self.queue else []
        return job.key

    submit_many = Backend.submit_many

    async def next(self, wait_s=None):  # noqa: ARG002 - as all backends
        return self.endings[self.queue.pop(0)] if self.queue else None

    async def cancel(self, job_id):
        self.queue = [key for key in self.queue if key != job_id]

    async def refuse(self, job_id, reason):
        self.refused.append((job_id, reason))

    def now(self):
        return 0.0


class OnceAway(LocalBackend):
    """A backend whose first submission does not get through."""

    tried = False

    async def submit(self, job):
        if not self.tried:
            self.tried = True
            raise UnreachableError("STO-C050", "nobody answers")
        return await super().submit(job)


async def test_submission_that_failed_is_made_again_by_the_next_step():
    async with OnceAway() as backend, make_run(backend, outage_s=0.0) as run:
        with pytest.raises(UnreachableError):
            await run.step()
        end = await run.finish()
    assert end.version == 2


class Foreign(LocalBackend):
    """A server that knows the first keys for tasks of other content."""

    def __init__(self):
        super().__init__()
        self.refused = set()

    async def submit(self, job):
        if len(self.refused) < 3 and job.key not in self.refused:
            self.refused.add(job.key)
            raise UsageError("STO-R011", "the key names another task")
        return await super().submit(job)


async def test_key_of_a_task_with_other_content_is_given_up():
    async with Foreign() as backend, make_run(backend) as run:
        end = await run.finish()
    assert (end.version, len(run.backend.refused)) == (2, 3)


async def test_exception_of_a_method_leaves_the_order_out():
    async with LocalBackend() as backend, make_run(backend) as run:
        run.method.take = lambda *_: 1 / 0
        with pytest.raises(ZeroDivisionError):
            await run.step()
        assert len(run._flights) == 4


class Frail(Sgd):
    """An optimiser that has no memory for its first step."""

    tried = False

    def step(self, *arguments):
        if not self.tried:
            self.tried = True
            raise MemoryError("no room for this step")
        return super().step(*arguments)


async def test_step_that_was_applied_half_is_not_saved_and_the_next_start_goes_on(
    tmp_path,
):
    memory = Memory()
    async with make_run(memory, tmp_path) as run:
        run.method.optimizer = Frail(0.01)
        with pytest.raises(MemoryError):
            await run.finish()
        with pytest.raises(InternalError, match="STO-T020"):
            await run.step()
    async with make_run(memory, tmp_path) as run:
        end = await run.finish()
    assert (end.version, memory.fresh) == (2, 8)


def fail(times, key=""):
    """Return a volunteer's lie: this piece of work, or any, raises."""
    lies = iter(range(times))

    def lie(job):
        if not job.label.endswith(key) or next(lies, None) is None:
            return None
        error = user_error("ValueError", "no", "STO-G200")
        return JobEnd(job.key, None, error, 0.0)

    return lie


async def test_volunteer_who_says_that_the_function_raised_ends_no_training(tmp_path):
    memory = Memory(fail(4, "e1/s0/p2"))
    async with make_run(memory, tmp_path) as run:
        end = await run.finish()
    assert (end.version, run.tally.refused) == (2, 4)
    assert len(memory.refused) == 4


async def test_start_after_one_that_volunteers_ended_orders_other_tasks(tmp_path):
    memory = Memory(fail(13))  # the first piece four times
    with pytest.raises(ValueError, match="no"):
        async with make_run(memory, tmp_path) as run:
            await run.finish()
    async with make_run(memory, tmp_path) as run:
        end = await run.finish()
    assert (end.version, memory.refused) == (2, [])


async def test_work_whose_answer_did_not_count_is_another_task_when_ordered_again():
    async with make_run(Memory()) as run:
        taken, discarded = run.method.take, []

        def take(order, reply):
            if discarded:
                return taken(order, reply)
            discarded.append(order.key)
            run.method.lose(order)
            return Update(
                order.key, 0, applied=False, loss=0.0, samples=15, staleness=0, epoch=0
            )

        run.method.take = take
        assert (await run.finish()).version == 2
    assert run.backend.fresh == 9


def test_attempts_of_old_work_are_forgotten(monkeypatch):
    monkeypatch.setattr(in_flight, "MOST_TRIED", 2)
    found = in_flight.Flights()
    for key in "abca":
        order = Order(key, "gradient", Snapshot(0, {}), 0, 1)
        flight = found.add(order)
        flight.job_id = key
        found.end(key)
    assert found.save().plain["attempts"] == {"c": 1, "a": 1}


class Full(Memory):
    """A server that hears of a wrong answer; `seen` is what was saved by then."""

    async def refuse(self, job_id, reason):
        await super().refuse(job_id, reason)
        self.seen = (self.folder / "run.json").read_text()


async def test_run_is_saved_before_the_server_hears_of_a_wrong_answer(tmp_path):
    backend = Full(lambda job: spoiled(job) if job.label.endswith("e0/s0/p1") else None)
    backend.folder = tmp_path
    async with make_run(backend, tmp_path, patience=1) as run:
        with pytest.raises(InternalError, match="STO-T021"):
            await run.finish()
    assert '"refused":1' in backend.seen


def spoiled(job):
    return JobEnd(job.key, spoil(run_job(job).value), None, 0.0)


@pytest.mark.parametrize("loss", [1.7e308, -1.7e308])
async def test_loss_beyond_every_measure_is_refused(loss):
    backend = SimulatedBackend(
        [SimulatedHost(cheat=lambda value: {**value, "loss_sum": loss})]
    )
    with pytest.raises(InternalError, match="STO-T021"):
        async with make_run(backend) as run:
            await run.finish()
    assert run.method.snapshot.version == 0


def statistics(variance=1.0, counter=5, mask=1.0):
    return {
        "bn.running_mean": np.zeros(2),
        "bn.running_var": np.full(2, variance),
        "bn.num_batches_tracked": np.array(counter),
        "mask": np.full(2, mask),
    }


def order():
    base = Snapshot(0, {"w": np.zeros(1)}, statistics(counter=4))
    return Order("k", "gradient", base, 0, 1)


@pytest.mark.parametrize(
    "wrong", [{"variance": -1e6}, {"counter": 2**62}, {"counter": 3}]
)
def test_statistics_that_cannot_be_are_refused(wrong):
    reply = Reply(0, 1, 1.0, {}, statistics(**wrong))
    with pytest.raises(TrustError, match="STO-T010"):
        keep_buffers(order(), reply)


def test_volunteers_write_no_buffers_but_statistics():
    reply = keep_buffers(order(), Reply(0, 1, 1.0, {}, statistics(0.5, 5, mask=9.0)))
    assert reply.buffers["mask"].tolist() == [1.0, 1.0]
    assert reply.buffers["bn.running_var"].tolist() == [0.5, 0.5]


def test_parts_of_an_epoch_are_not_discarded_for_ever():
    with pytest.raises(UsageError, match="STO-T040"):
        VcasgdSettings(
            2, LocalWork(rate=0.1), pull="epoch", staleness=Staleness("discard", 1)
        )


@pytest.mark.parametrize("optimizer", [Adagrad(0.1), Sgd(0.1)])
def test_stale_push_is_damped_whatever_the_optimiser_scales(optimizer):
    settings = DownpourSettings(1, 4, staleness=Staleness("damp"))
    method = Downpour(Snapshot(0, {"w": np.zeros(1)}), [4, 4], optimizer, settings)
    moves = []
    for one in method.next_orders(2):
        before = method.snapshot.parameters["w"].copy()
        method.take(one, Reply(0, one.samples, 1.0, {"w": np.ones(1)}))
        moves.append(float((before - method.snapshot.parameters["w"])[0]))
    plain = 0.1 if isinstance(optimizer, Sgd) else 0.1 / math.sqrt(2)
    assert moves[1] == pytest.approx(plain / 2)


async def test_loss_that_is_a_sum_steps_by_the_sum():
    steps = []
    for loss in (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(reduction="sum")):
        model = make_model()
        before = model[2].bias.detach().clone()
        async with DPBGDTrainer(
            None, model, loss, torch.optim.SGD, {"lr": 1e-4}, make_data()
        ) as trainer:
            await trainer.train_epoch()
        steps.append((model[2].bias.detach() - before).norm())
    assert float(steps[1] / steps[0]) == pytest.approx(60.0, rel=1e-2)
