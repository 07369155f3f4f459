"""Parts that are read when they are needed: the same training, one part at a time."""

import gc
import weakref

import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn import LazyPart, LocalBackend, Part, TrainerOptions, fit, make_trainer
from stoilo.learn.backends import Handle
from stoilo.learn.core.lazy import name_part
from stoilo.learn.driver.in_flight import Jobs
from stoilo.learn.driver.saving import Tally
from stoilo.learn.methods.base import Piece
from tests.support.points import make_model, make_samples

PARTS = [Part(*make_samples(30, seed)) for seed in range(4)]


class Shelf:
    """Where parts lie; it counts how often each was read and who still holds one."""

    def __init__(self, parts=PARTS):
        self.parts, self.reads, self._seen = list(parts), [0] * len(parts), []

    def lazy(self):
        return [
            LazyPart.of(lambda at=at: self.read(at)) for at in range(len(self.parts))
        ]

    def read(self, at):
        self.reads[at] += 1
        part = self.parts[at]
        fresh = Part(np.array(part.x), np.array(part.y))
        self._seen.append(weakref.ref(fresh.x))
        return fresh

    @property
    def held(self):
        gc.collect()
        return sum(one() is not None for one in self._seen)


class Store(LocalBackend):
    """A place that keeps nothing of what it was given but the name, as a server's client."""

    async def put(self, value):
        kept = await super().put(value)
        return Handle(kept.digest, kept.size, None)


def make_jobs(parts):
    return Jobs(make_model(), parts, "run", Tally())


def order(part):
    return Piece(part, 30).order(f"p{part}", make_model().first(), 0)


@pytest.mark.parametrize("method", ["dpbgd", "vcasgd"])
async def test_training_is_the_same_to_the_last_bit(method):
    ends = []
    for parts in (PARTS, Shelf().lazy()):
        async with LocalBackend(1) as place:
            trained = await fit(method, make_model(), parts, place, epochs=3, rate=0.2)
        ends.append(trained.snapshot.parameters["w"].tobytes())
    assert ends[0] == ends[1]


async def test_each_part_is_read_once_for_all_its_tasks_and_let_go():
    shelf = Shelf()
    jobs, most = make_jobs(shelf.lazy()), 0
    assert (shelf.reads, shelf.held) == ([1] * 4, 0)
    async with Store(1) as place:
        for turn in range(12):
            await jobs.arguments(order(turn % 4), place)
            most = max(most, shelf.held)
    assert shelf.reads == [2] * 4
    assert most <= 1


async def test_parts_in_memory_are_held_as_before():
    shelf = Shelf()
    jobs = make_jobs([shelf.read(at) for at in range(4)])
    async with Store(1) as place:
        await jobs.arguments(order(0), place)
    assert shelf.held == 4


async def test_changed_source_is_refused_before_a_task_names_it():
    shelf = Shelf()
    jobs = make_jobs(shelf.lazy())
    shelf.parts[2] = PARTS[3]
    async with Store(1) as place:
        await jobs.arguments(order(1), place)
        for _ in range(2):  # asked again, it is refused again
            with pytest.raises(UsageError, match=r"not what it was.*STO-T004"):
                await jobs.arguments(order(2), place)


def test_samples_of_a_changed_source_are_refused():
    shelf = Shelf()
    lazy = shelf.lazy()[0]
    assert np.array_equal(lazy.take([1, 3]).x, PARTS[0].x[[1, 3]])
    shelf.parts[0] = PARTS[1]
    for read in (lambda: lazy.x, lambda: lazy.y, lambda: lazy.take([0])):
        with pytest.raises(UsageError, match="STO-T004"):
            read()


async def test_folder_of_a_lazy_training_is_that_of_the_same_data(tmp_path):
    options = TrainerOptions(folder=tmp_path)
    for parts in (Shelf().lazy(), PARTS):
        async with make_trainer(
            "vcasgd", make_model(), parts, options=options, alpha=0.5
        ) as trainer:
            await trainer.train_epoch()
    assert trainer.epoch_number == 2
    other = Shelf([*PARTS[:3], PARTS[0]]).lazy()
    with pytest.raises(UsageError, match=r"data.*STO-T012"):
        await make_trainer("vcasgd", make_model(), other, options=options, alpha=0.5)


def test_files_are_mapped_and_named_as_their_arrays(tmp_path):
    np.save(tmp_path / "x.npy", PARTS[0].x)
    np.save(tmp_path / "y.npy", PARTS[0].y)
    lazy = LazyPart.of_files(tmp_path / "x.npy", tmp_path / "y.npy")
    assert (len(lazy), lazy.nbytes) == (len(PARTS[0]), PARTS[0].nbytes)
    assert lazy.digest == name_part(lazy) == name_part(PARTS[0]) != name_part(PARTS[1])
    assert isinstance(lazy.load().x.base, np.memmap)
    assert np.array_equal(lazy.y, PARTS[0].y)
    assert "30 samples" in repr(lazy)
