"""Copies that workers read: as old as the limit allows, per key, own updates included."""

import random

import pytest

from stoilo.core.errors import UsageError
from stoilo.learn.store.clock import VectorClock
from stoilo.learn.store.workers import Cached, CachedReader

KEYS = [f"k{index}" for index in range(10)]


class Log:
    """A server whose values are the sets of (worker, iteration) that are in."""

    def __init__(self):
        self.values = {key: frozenset() for key in KEYS}
        self.fetches = 0

    def fetch(self, keys):
        self.fetches += 1
        return {key: self.values[key] for key in keys}

    def push(self, worker, iteration):
        for key in KEYS:
            self.values[key] |= {(worker, iteration)}


class TaggedByWorker(CachedReader):
    """The published defect: one tag for all keys."""

    def _is_fresh(self, _key, copy):
        newest = max(cached.at for cached in self.cached.values())
        return super()._is_fresh(_key, Cached(copy.value, newest))


def oldest_missing(limit, reader, seed=0, steps=1500):
    """Return by how many iterations more than the limit a value read was too old."""
    log, clock = Log(), VectorClock(limit)
    workers = [f"w{index}" for index in range(4)]
    clock.join(workers)
    readers = {w: reader(w, clock, log.fetch) for w in workers}
    chance, worst = random.Random(seed), 0
    for _ in range(steps):
        worker = chance.choice(workers)
        if not clock.may_start(worker):
            continue
        for key in chance.sample(KEYS, 2):
            seen = readers[worker].read(key)
            worst = max(worst, missing(seen, clock, worker))
        now = clock.clock_of(worker)
        log.push(worker, now)
        own = {(worker, now)}
        readers[worker].note_own(dict.fromkeys(KEYS, own.__or__))
        clock.commit(worker, now)
    return worst


def missing(seen, clock, worker):
    """Return how many iterations before the promise are not in what was read."""
    need = clock.need(worker)
    mine = [(worker, i) for i in range(clock.clock_of(worker))]
    others = [(w, i) for w in clock.clocks for i in range(need)]
    return sum(entry not in seen for entry in [*mine, *others])


@pytest.mark.parametrize("limit", [0, 1, 3, 8])
def test_ten_keys_each_hold_all_that_the_limit_promises(limit):
    assert oldest_missing(limit, CachedReader, steps=300) == 0


def test_defect_4_one_tag_for_all_keys_breaks_the_promise():
    assert oldest_missing(3, TaggedByWorker, steps=300) > 20


def test_copy_that_is_new_enough_is_not_fetched_again():
    log, clock = Log(), VectorClock(3)
    clock.join(["a"])
    reader = CachedReader("a", clock, log.fetch)
    for iteration in range(4):
        reader.read("k0")
        clock.commit("a", iteration)
    assert log.fetches == 1


def test_batch_fetches_what_is_stale_once_and_the_rest_not_at_all():
    log, clock = Log(), VectorClock(0)
    clock.join(["a"])
    reader = CachedReader("a", clock, log.fetch)
    reader.read("k0")
    asked = []
    reader.fetch = lambda keys: asked.append(list(keys)) or log.fetch(keys)
    assert list(reader.read_many(["k1", "k0", "k2", "k1"])) == ["k1", "k0", "k2"]
    assert asked == [["k1", "k2"]]


def test_value_that_was_fetched_while_others_commit_is_as_old_as_the_request():
    log, clock = Log(), VectorClock(3)
    clock.join(["a"])

    def fetch(keys):
        found = log.fetch(keys)
        clock.commit("a", 0)
        return found

    reader = CachedReader("a", clock, fetch)
    reader.read("k0")
    assert reader.cached["k0"].at == 0


def test_without_a_limit_copies_are_fetched_again_by_the_period():
    log, clock = Log(), VectorClock(None)
    clock.join(["a", "b"])
    reader = CachedReader("a", clock, log.fetch, period=2)
    for iteration in range(6):
        reader.read("k0")
        clock.commit("a", iteration)
    assert log.fetches == 3


def test_worker_that_must_wait_cannot_read():
    clock = VectorClock(0)
    clock.join(["a", "b"])
    clock.commit("a", 0)
    with pytest.raises(UsageError, match="STO-T063"):
        CachedReader("a", clock, Log().fetch).read("k0")
