import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.learn.kernels.array_models import deal
from stoilo.learn.methods.base import (
    Ledger,
    LocalWork,
    Staleness,
    check_parts,
    derive_order_seed,
    derive_seed,
    shuffle,
)
from tests.support.resuming import store


@given(st.integers(1, 50), st.integers(0, 60), st.integers(0, 20))
def test_ordered_samples_are_those_that_the_kernel_uses(size, batch, steps):
    local = LocalWork(0.1, batch=batch, steps=steps)
    settings = local.render(size, 7, "sum")
    batches = deal(size, settings["batch"] or size, settings["seed"])
    used = itertools.islice(batches, settings["steps"])
    assert sum(len(rows) for rows in used) == local.count_samples(size)


def test_shuffling_depends_on_the_place_alone():
    assert shuffle(99, 1, 2, 3).tolist() == shuffle(99, 1, 2, 3).tolist()
    assert shuffle(99, 1, 2, 3).tolist() != shuffle(99, 1, 2, 4).tolist()
    assert sorted(shuffle(99, 5).tolist()) == list(range(99))


@given(st.integers(-(2**40), 2**40), st.text(max_size=20))
def test_seed_of_an_order_fits_every_kernel(seed, key):
    assert 0 <= derive_order_seed(seed, key) < 2**31
    assert derive_order_seed(seed, key) == derive_order_seed(seed, key)
    assert derive_order_seed(seed, key) != derive_order_seed(seed, key + "x")


def test_negative_seed_is_refused():
    with pytest.raises(UsageError, match="STO-T040"):
        shuffle(9, -1, 0)
    with pytest.raises(UsageError, match="STO-T040"):
        derive_seed(-1, 0)


@pytest.mark.parametrize(("staleness", "weights"), [
    (Staleness(), [1.0, 1.0, 1.0]),
    (Staleness("damp"), [1.0, 0.5, 1 / 3]),
    (Staleness("damp", limit=1), [1.0, 0.5, 0.0]),
    (Staleness("discard", limit=1), [1.0, 1.0, 0.0]),
])  # fmt: skip
def test_older_answers_weigh_by_the_policy(staleness, weights):
    assert [staleness.weigh(age) for age in range(3)] == weights


@pytest.mark.parametrize("parts", [[], [0], [3, -1]])
def test_parts_without_samples_are_refused(parts):
    with pytest.raises(UsageError, match="STO-T040"):
        check_parts(parts)


def test_oldest_keys_get_backups_only_near_the_end():
    ledger = Ledger("abcdef")
    ledger.draw(5)
    assert ledger.draw_backups(9, share=1.0) == []  # one still waits
    ledger.draw(1)
    for key in "acd":
        assert ledger.answer(key)
    assert ledger.draw_backups(9, share=0.4) == []
    assert ledger.draw_backups(2, share=0.5) == ["b", "e"]
    assert ledger.draw_backups(9, share=0.5) == ["f"]


def test_age_of_keys_survives_a_checkpoint():
    ledger, other = Ledger("cab"), Ledger()
    ledger.draw(3)
    other.load(store(ledger.save()))
    assert other.draw_backups(3, share=1.0) == ["c", "a", "b"]


@given(
    st.lists(st.tuples(st.sampled_from("dbtl"), st.sampled_from("abcd")), max_size=60)
)
def test_each_key_is_answered_once_whatever_happens(events):
    ledger, answered = Ledger("abcd"), []
    for kind, key in events:
        match kind:
            case "d":
                ledger.draw(1)
            case "b":
                ledger.draw_backups(1, share=1.0)
            case "t":
                answered += [key] if ledger.answer(key) else []
            case _:
                ledger.lose(key)
        saved, ledger = ledger.save(), Ledger()
        ledger.load(saved)
    assert ledger.size == 4
    assert sorted(set(answered)) == sorted(answered)
