"""The liar lies as its names say: acceptance refuses each kind, and the truth passes."""

import numpy as np
import pytest

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import from_node, to_node
from stoilo.core.codec.reader import DATA_BOUNDS
from stoilo.core.errors import TrustError
from stoilo.learn.core.tensors import Form
from stoilo.learn.driver.acceptance import Expectation, check_reply
from tests.support.liar import ENCODED_LIES, LIES, OTHERS, lie_about

EXPECTED = Expectation(7, 4, {"w": Form("float64", (2, 3))}, {})
TRUE = {
    "version": 7,
    "samples": 4,
    "loss_sum": 1.5,
    "tensors": {"w": np.ones((2, 3))},
    "buffers": {},
    "correct": 2,
}


def receive(name):
    """Return what the driver makes of what a liar sends."""
    encoded = lie_about(skeleton.encode(to_node(TRUE)), name)
    decoded = skeleton.decode(encoded, DATA_BOUNDS)
    return check_reply(from_node(decoded), EXPECTED)


@pytest.mark.parametrize("name", [*LIES, *ENCODED_LIES])
def test_every_lie_about_a_form_is_refused(name):
    with pytest.raises((TrustError, TypeError)):
        receive(name)


@pytest.mark.parametrize("name", sorted(set(OTHERS) - {"another version"}))
def test_what_has_the_right_form_passes(name):
    assert receive(name).samples == 4


def test_validator_for_servers_says_the_same_of_every_value():
    check = EXPECTED.validator()
    assert [check(lie(TRUE)) for lie in LIES.values()] == [False] * len(LIES)
    assert check(TRUE)
    assert check(OTHERS["another version"](TRUE))  # that the driver knows
