"""Hostile answers: each is refused before a number of it is used."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.client.capture.known import Captures
from stoilo.core.errors import TrustError
from stoilo.learn.core.orders import Reply
from stoilo.learn.core.tensors import Form
from stoilo.learn.driver.acceptance import Expectation, check_reply

FORM = {"w": Form("float32", (2, 3))}
EXPECTED = Expectation(7, 4, FORM, {"m": Form("int64", ())}, least_loss=0.0)


def answer(**changes):
    good = {
        "version": 7,
        "samples": 4,
        "loss_sum": 1.5,
        "tensors": {"w": np.ones((2, 3), np.float32)},
        "buffers": {"m": np.array(3)},
        "correct": 2,
    }
    return {**good, **changes}


def test_answer_as_ordered_becomes_a_reply():
    reply = check_reply(answer(), EXPECTED)
    assert (reply.samples, reply.loss_sum, reply.correct) == (4, 1.5, 2)


HOSTILE = {
    "none": None,
    "list": [1],
    "missing field": {k: v for k, v in answer().items() if k != "correct"},
    "further field": answer(extra=1),
    "other version": answer(version=6),
    "version as bool": answer(version=True),
    "version as float": answer(version=7.0),
    "fewer samples": answer(samples=3),
    "loss not finite": answer(loss_sum=math.nan),
    "loss below its least": answer(loss_sum=-1.0),
    "loss as int": answer(loss_sum=1),
    "no tensor": answer(tensors={}),
    "further tensor": answer(tensors={**answer()["tensors"], "v": np.ones(1)}),
    "tensors as list": answer(tensors=[np.ones((2, 3), np.float32)]),
    "other shape": answer(tensors={"w": np.ones((3, 2), np.float32)}),
    "other type": answer(tensors={"w": np.ones((2, 3))}),
    "tensor as list": answer(tensors={"w": [[1.0] * 3] * 2}),
    "objects": answer(tensors={"w": np.full((2, 3), None)}),
    "NaN": answer(tensors={"w": np.full((2, 3), math.nan, np.float32)}),
    "infinity": answer(tensors={"w": np.full((2, 3), math.inf, np.float32)}),
    "no buffer": answer(buffers={}),
    "more right than samples": answer(correct=5),
    "a name that is no text": answer(tensors={3: np.ones((2, 3), np.float32)}),
    "masked array": answer(tensors={"w": np.ma.ones((2, 3), np.float32)}),
    "a further field": answer(numbers={}),
    "a pickle": b"\x80\x04\x95",
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
def test_answer_with_one_thing_wrong_is_refused(raw):
    with pytest.raises(TrustError, match="STO-T010"):
        check_reply(raw, EXPECTED)


def test_gradient_that_is_lacking_stays_absent_only_where_it_may_lack():
    forms = {**FORM, "unused": Form("float32", (2,))}
    may = Expectation(7, 4, forms, EXPECTED.buffers, may_lack=frozenset({"unused"}))
    assert list(check_reply(answer(), may).tensors) == ["w"]
    with pytest.raises(TrustError, match="STO-T010"):  # who did nothing
        check_reply(answer(tensors={}), may)


SIMPLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
NESTED = st.recursive(
    SIMPLE, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SIMPLE, inner)
)


@given(st.dictionaries(st.sampled_from(sorted(answer())), NESTED))
def test_anything_in_any_field_is_a_reply_or_our_error(changes):
    try:
        assert isinstance(check_reply(answer(**changes), EXPECTED), Reply)
    except TrustError as error:
        assert error.code == "STO-T010"


def capture_rule(captures, expected):
    return captures.task(len, {}, expected.validator(), expected.comparator())


def test_orders_of_one_kernel_share_the_text_of_their_rules():
    captures = Captures()
    orders = [replace(EXPECTED, version=n, samples=n + 1) for n in range(5)]
    made = {capture_rule(captures, one).validator_module for one in orders}
    assert (len(made), captures.written) == (1, 1)
    other = replace(EXPECTED, tensors={"w": Form("float32", (3, 2))})
    assert capture_rule(captures, other).validator_module not in made
