"""A coordinator without vectors: what a run with them comes to, and nothing else."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy.optimize import fmin_l_bfgs_b

from stoilo.core.errors import UsageError
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.core.tensors import flatten, unflatten
from stoilo.learn.driver.apart import harvest, plant
from stoilo.learn.methods.lbfgs import Rules
from stoilo.learn.methods.rules import Clip
from stoilo.learn.methods.sandblaster import SandblasterSettings
from stoilo.learn.store.network import Project
from stoilo.learn.trainers.named import SandblasterTrainer
from stoilo.learn.trainers.options import TrainerOptions
from tests.support.apart import FakeProject, FakeServer, serve_shards, softmax_loss
from tests.support.learning import load_digits

PENALTY, RULES = 1e-3, Rules(iterations=200, tolerance=1e-6)
FEW = Rules(iterations=4)


def parts(*sizes):
    digits, ends = load_digits(), np.cumsum((0, *sizes))
    cuts = [slice(a, b) for a, b in itertools.pairwise(ends)]
    return [Part(digits.images[cut], digits.labels[cut]) for cut in cuts]


def model(kind=np.float64):
    return ArrayModel({"w": np.zeros((64, 10), kind), "b": np.zeros(10)}, softmax_loss)


STUB = ArrayModel({"none": np.zeros(1)}, softmax_loss)
DATA = parts(50, 69, 1)


async def train_apart(places, planted, server, rules=FEW, watch=id, **options):
    wanted = SandblasterSettings(
        2, PENALTY, rules=rules, places=places, planted=planted
    )
    options = TrainerOptions(**options)
    trainer = SandblasterTrainer(server, STUB, DATA, wanted, options=options)
    async with trainer:
        watch(trainer.run.method)
        await trainer.train()
        return trainer.run


async def train_near(rules=FEW, kind=np.float64):
    wanted = SandblasterSettings(2, PENALTY, shards=2, rules=rules)
    async with SandblasterTrainer(None, model(kind), DATA, wanted) as trainer:
        return flatten((await trainer.train()).snapshot.parameters)


@pytest.fixture
def project():
    return FakeProject()


@pytest.fixture
def places(tmp_path, project):
    with serve_shards(tmp_path, 2, project) as found:
        yield found


@pytest.mark.slow
async def test_minimum_is_scipys(places, project):
    planted = plant(places, model(), DATA[0])
    run = await train_apart(places, planted, FakeServer(project), RULES)
    x = np.concatenate([part.x for part in DATA])
    y = np.concatenate([part.y for part in DATA])

    def evaluate(point):
        loss, slope = softmax_loss(unflatten(point, model().parameters), x, y)
        mean = flatten({n: slope[n] for n in ("w", "b")}) / len(y) + PENALTY * point
        return loss / len(y) + 0.5 * PENALTY * point @ point, mean

    start = flatten(model().parameters)
    _, value, _ = fmin_l_bfgs_b(evaluate, start, pgtol=1e-6, factr=10.0, maxiter=500)
    assert abs(run.method.value - value) < 1e-7 * value
    found = flatten(harvest(places, planted))
    assert abs(evaluate(found)[0] - value) < 1e-7 * value


@pytest.mark.parametrize("kind", [np.float64, np.float32])
async def test_bits_are_those_of_a_run_whose_vectors_pass_the_trainer(
    places, project, kind
):
    planted = plant(places, model(kind), DATA[0])
    await train_apart(places, planted, FakeServer(project))
    found = harvest(places, planted)
    assert found["w"].dtype == kind
    assert flatten(found).tobytes() == (await train_near(kind=kind)).tobytes()


async def test_no_array_of_the_run_is_as_large_as_a_range_and_near_ones_are(
    places, project, tmp_path
):
    """Saved states and what reaches the method; the process is measured in e2e."""
    seen = []
    planted = plant(places, model(), DATA[0])
    few = Rules(iterations=1)
    wanted = SandblasterSettings(1, PENALTY, rules=few, places=places, planted=planted)
    for settings, net in (
        (wanted, STUB),
        (SandblasterSettings(1, PENALTY, rules=few), model()),
    ):
        place = FakeServer(project) if settings is wanted else None
        options = TrainerOptions(folder=tmp_path / f"{len(seen)}")
        async with SandblasterTrainer(
            place, net, DATA, settings, options=options
        ) as trainer:
            method, largest = trainer.run.method, [0]
            take = method.take
            method.take = lambda order, reply, t=take, m=largest: (
                m.append(max(a.size for a in reply.tensors.values())) or t(order, reply)
            )
            await trainer.train()
            saved = [array.size for array in method.save().tensors.values()]
            seen.append(max(*largest, *saved, 0))
    assert seen[0] == 1
    assert seen[1] >= 650


def pull(number, value):
    """Lie a hundredfold, once the run knows what is usual."""
    if number < 12:
        return value
    long = {name: 1e3 * array for name, array in value["tensors"].items()}
    return {**value, "tensors": long} if number % 6 == 0 else value


def spy(lengths):
    """Note how long each answer is at the shards when it is added."""

    def watch(method):
        plain = method.vectors.axpy

        def axpy(target, factor, source):
            if target == "slope" and source.startswith("part/"):
                lengths.append(method.vectors.norm(source))
            plain(target, factor, source)

        method.vectors.axpy = axpy

    return watch


@pytest.mark.parametrize(("clip", "cut"), [(Clip(), True), (None, False)])
async def test_bound_on_answers_holds_at_the_shards(places, project, clip, cut):
    """Control: without the bound the same lies count in full."""
    planted, lengths = plant(places, model(), DATA[0]), list[float]()
    server = FakeServer(project, pull)
    run = await train_apart(places, planted, server, watch=spy(lengths), clip=clip)
    assert (run.tally.shortened > 0) == cut
    assert (max(lengths) < 20 * max(lengths[:5])) == cut


FAULTS = {
    "no answer": lambda _: 7,
    "another library": lambda _: UsageError("STO-D011", "not installed here"),
    "another shape": lambda v: {**v, "tensors": {**v["tensors"], "b": np.zeros(9)}},
    "not finite": lambda v: {
        **v,
        "tensors": {**v["tensors"], "b": np.full(10, np.nan)},
    },
    "too few samples": lambda v: {**v, "samples": 1},
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_answer_of_another_form_is_refused_by_shards_and_given_out_again(
    places, project, fault
):
    def spoil(number, value):
        return FAULTS[fault](value) if number == 3 else value

    planted = plant(places, model(), DATA[0])
    server = FakeServer(project, spoil)
    run = await train_apart(places, planted, server)
    assert run.tally.refused == len(server.refused) == 1
    found = flatten(harvest(places, planted))
    assert found.tobytes() == (await train_near()).tobytes()


async def test_answers_in_another_order_give_the_same_bits(places, project):
    planted = plant(places, model(), DATA[0])

    class Backwards(FakeServer):
        async def next(self, wait_s=None):
            self._ended.reverse()
            return await super().next(wait_s)

    await train_apart(places, planted, Backwards(project), in_flight=9)
    found = flatten(harvest(places, planted))
    assert found.tobytes() == (await train_near()).tobytes()


@pytest.mark.slow
async def test_killed_coordinator_goes_on_from_its_folder_to_the_same_bits(
    places, project, tmp_path
):
    planted = plant(places, model(), DATA[0])
    wanted = SandblasterSettings(2, PENALTY, rules=FEW, places=places, planted=planted)
    options = TrainerOptions(folder=tmp_path / "run")
    trainer = SandblasterTrainer(
        FakeServer(project), STUB, DATA, wanted, options=options
    )
    await trainer.start()
    for _ in range(9):
        await trainer._step()
    trainer.run.method.close()  # the streams end, and the lock, as with the process
    trainer.run._saving.close()
    again = SandblasterTrainer(FakeServer(project), STUB, DATA, wanted, options=options)
    async with again:
        await again.train()
    found = flatten(harvest(places, planted))
    assert found.tobytes() == (await train_near()).tobytes()


@pytest.mark.parametrize("options", [
    {"held_out": DATA[0]}, {"transport": "int8"},
])  # fmt: skip
def test_what_needs_parameters_here_is_refused(places, options):
    planted = plant(places, model(), DATA[0])
    wanted = SandblasterSettings(places=places, planted=planted)
    options = TrainerOptions(**options)
    with pytest.raises(UsageError, match="STO-T040"):
        SandblasterTrainer(
            FakeServer(FakeProject()), STUB, DATA, wanted, options=options
        )


async def test_threads_whose_answers_arise_here_are_refused(places):
    planted = plant(places, model())
    wanted = SandblasterSettings(places=places, planted=planted)
    async with SandblasterTrainer(None, STUB, DATA, wanted) as trainer:
        with pytest.raises(UsageError, match="STO-T040"):
            await trainer.train()


def test_shards_without_a_project_say_so(tmp_path):
    with serve_shards(tmp_path, 1, Project(None)) as places:
        planted = plant(places, model())
        wanted = SandblasterSettings(places=places, planted=planted)
        with pytest.raises(UsageError, match="STO-C045"):
            SandblasterTrainer(FakeServer(FakeProject()), STUB, DATA, wanted)


def test_model_with_buffers_and_planted_vectors_without_places_are_refused(places):
    with pytest.raises(UsageError, match="STO-T040"):
        SandblasterSettings(planted=plant(places, model()))

    class Buffered(ArrayModel):
        def first(self):
            return dataclasses.replace(super().first(), buffers={"mean": np.zeros(1)})

    with pytest.raises(UsageError, match="STO-T040"):
        plant(places, Buffered({"w": np.zeros(3)}, softmax_loss))
