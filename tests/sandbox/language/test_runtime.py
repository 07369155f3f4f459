import pytest

from stoilo.sandbox.language.runtime import RUN, start_item

PURE = """
import random, time, datetime
def run(d):
    unseeded = random.Random()
    random.seed()
    return [
        random.random(), unseeded.random(), random.Random().random(),
        time.time(), time.time_ns(), time.perf_counter() < time.perf_counter(),
        time.strftime("%Y-%m-%d %H:%M:%S"), time.localtime().tm_hour,
        datetime.datetime.now(), datetime.datetime.now(datetime.timezone.utc),
        datetime.datetime.utcnow(), str(datetime.date.today()),
    ]
"""
NUMPY = """
import numpy as np
def run(d):
    np.random.seed()
    return [
        np.random.rand(), np.random.default_rng().random(),
        np.random.default_rng().random(), np.random.RandomState().rand(),
        np.random.Generator(np.random.PCG64()).random(),
        int(np.random.MT19937().random_raw()), str(np.random.SeedSequence().entropy),
        np.empty(3), np.empty_like([1.5]),
    ]
"""


def test_same_seed_same_values_another_seed_others(language):
    first, again = language.value(PURE), language.value(PURE)
    other = language.value(PURE, seed="08" * 32)
    assert first == again
    assert all(a != b for a, b in zip(first[:3], other[:3], strict=True))
    assert first[3:] == other[3:]
    assert len(set(first[:3])) == 3


def test_clock_is_the_admissions_in_utc(language):
    values = language.value(PURE)
    assert values[3] == language.now
    assert values[6] == "2023-11-14 22:13:20"
    assert values[8].isoformat() == "2023-11-14T22:13:20"
    assert values[9].isoformat() == "2023-11-14T22:13:20+00:00"
    assert values[11] == "2023-11-14"


def test_numpy_draws_nothing_from_the_system(numeric_language):
    first, again = numeric_language.value(NUMPY), numeric_language.value(NUMPY)
    assert repr([first]) == repr([again]) or first[:7] == again[:7]
    assert bytes(first[7].data) == bytes(24)


@pytest.mark.parametrize("name", ["uuid", "secrets", "os", "threading", "tempfile"])
def test_modules_with_entropy_do_not_exist(language, name):
    frame, _ = language.call(f"import {name}\ndef f(d): pass")
    assert frame["code"] == "STO-P040"


def test_items_draw_from_streams_of_their_own():
    seeds = set()
    for index in range(50):
        start_item(b"s", index, 0)
        seeds |= {RUN.next_seed() for _ in range(3)}
    assert len(seeds) == 150
