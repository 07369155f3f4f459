"""Answers that stay: their handles by the keys of orders, here and at a server."""

import numpy as np
import pytest

from stoilo.client.capture.arguments import StoredValue
from stoilo.core.errors import TrustError
from stoilo.learn.backends import Handle
from stoilo.learn.core.orders import Order, Snapshot
from stoilo.learn.core.tensors import Form
from stoilo.learn.driver.acceptance import Expectation
from stoilo.learn.driver.mailbox import Mailbox

FIRST = Order("a", "forward", Snapshot(3, {}), 0, 2, stays=True)
SECOND = Order("b", "forward", Snapshot(3, {}), 0, 2, inputs={"input": "a"})
EXPECTED = Expectation(3, 2, {"output": Form("float64", (2,))}, {})
HERE = {
    "version": 3,
    "samples": 2,
    "loss_sum": 0.0,
    "tensors": {"output": np.arange(2.0)},
    "buffers": {},
    "correct": -1,
}
THERE = StoredValue("d" * 64, 7)


@pytest.mark.parametrize("stored", [THERE, HERE], ids=["server", "process"])
def test_saved_handle_names_the_same_answer(stored):
    mailbox, again = Mailbox(), Mailbox()
    mailbox.take(FIRST, Handle("d" * 64, 7, stored), EXPECTED)
    again.load(mailbox.save())
    found, before = (one.find(SECOND)["input"] for one in (again, mailbox))
    assert (found.digest, found.size) == (before.digest, before.size)
    assert str(found.stored) == str(before.stored)


@pytest.mark.parametrize("value", [HERE, Handle("d", 1, {**HERE, "tensors": {}})])
def test_what_did_not_stay_or_has_another_form_is_refused(value):
    with pytest.raises(TrustError, match="STO-T010"):
        Mailbox().take(FIRST, value, EXPECTED)


def test_answer_that_is_spent_cannot_be_named():
    mailbox = Mailbox()
    mailbox.take(FIRST, Handle("d" * 64, 7, THERE), EXPECTED)
    mailbox.forget(["a"])
    with pytest.raises(KeyError):
        mailbox.find(SECOND)
