"""Sheets: what travels comes back as it was; hostile ones end in errors of ours."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo import learn
from stoilo.core.errors import InternalError, StoiloError, UsageError
from stoilo.learn.coordinator.handing import _row_of
from stoilo.learn.coordinator.sheet import (
    load_snapshot,
    pack,
    parse_sheet,
    read_model,
    save_snapshot,
    unpack,
    write_sheet,
)
from stoilo.learn.core.orders import Snapshot
from stoilo.learn.driver.probing import Look, look_at

KNOWN = [
    learn.Adam(0.1, betas=(0.8, 0.9), decoupled=True),
    learn.RmsProp(kept=0.5),
    learn.Near(factor=1.5),
    learn.LocalWork(rate=0.1, steps=3),
    learn.PerLayer((("*.bias", learn.Half()),), learn.Ternary()),
    learn.Cosine(10),
]


@pytest.mark.parametrize("value", KNOWN, ids=lambda value: type(value).__name__)
def test_setting_comes_back_with_all_it_says(value):
    again = unpack(msgspec.json.decode(msgspec.json.encode(pack(value, "it"))))
    assert type(again) is type(value)
    assert pack(again, "it") == pack(value, "it")


def test_optimiser_that_has_begun_is_refused():
    begun = learn.Adam(0.1)
    begun.step({"w": np.ones(2)}, {"w": np.ones(2)})
    with pytest.raises(UsageError, match="optimizer"):
        pack(begun, "optimizer")


class Adam(learn.Adam):
    """Of the same name as one of ours."""


def test_class_of_a_known_name_that_is_another_is_refused():
    with pytest.raises(UsageError, match="Adam"):
        pack(Adam(0.1), "optimizer")


@pytest.mark.parametrize("name", ["Path", "open", "TorchOptimizer", "__import__"])
def test_class_outside_of_the_list_is_not_made(name):
    with pytest.raises(UsageError, match="STO-T040"):
        unpack({"": name, "rate": 1})


def squares(parameters, x, y):
    rest = x @ parameters["w"] - y
    return float(rest @ rest) / 2, {"w": x.T @ rest}


@pytest.fixture
def written():
    model = learn.ArrayModel({"w": np.zeros(2)}, squares)
    data = np.ones((6, 2)), np.ones(6)
    options = learn.TrainerOptions(tasks=2)
    trainer = learn.make_trainer("dpbgd", model, data, options=options)
    rows = [_row_of(part) for part in trainer.parts]
    return trainer, *write_sheet("dpbgd", trainer, {"epochs": 2}, None, rows)


def test_model_of_a_sheet_looks_like_home_and_can_compute_nothing(written):
    trainer, sheet, blobs = written
    model = read_model(parse_sheet(msgspec.json.encode(sheet)), blobs)
    order, part = trainer.draw_orders()[0], trainer.parts[0]
    found = look_at(model, order, part)
    assert found == look_at(trainer.form, order, part) != Look()
    with pytest.raises(InternalError, match="is text here"):
        model.kernel("gradient")({})


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {"folder": "/tmp/elsewhere"}},
        {"settings": {"server": 1}},
        {"options": {"folder": "/tmp/elsewhere"}},
        {"options": {"watcher": "x"}},
        {"first": "../../etc/passwd"},
        {"parts": []},
        {"surplus": 1},
        {"settings": {"optimizer": {"": "Adam", "wrong": 1}}},
    ],
)
def test_hostile_sheet_is_refused(written, change):
    record = msgspec.to_builtins(written[1]) | change
    with pytest.raises(UsageError, match="STO-T040"):
        parse_sheet(msgspec.json.encode(record))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_sheet_or_an_error_of_ours(data):
    with pytest.raises(StoiloError):
        parse_sheet(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_snapshot_or_an_error_of_ours(data):
    with pytest.raises(StoiloError):
        load_snapshot(data)


def test_snapshot_survives():
    given = Snapshot(7, {"w/a": np.arange(3.0)}, {"b": np.ones((2, 2), np.float32)})
    again = load_snapshot(save_snapshot(given), 7)
    assert again.version == 7
    assert np.array_equal(again.parameters["w/a"], given.parameters["w/a"])
    assert again.buffers["b"].dtype == np.float32
