"""``where=`` by any road gives zeros where nothing was computed."""

import pytest

ROADS = {
    "keyword": "np.add(x, 1, where=m)",
    "unpacked": "np.add(x, 1, **{'where': m})",
    "out none": "np.add(x, 1, out=None, where=m)",
    "positional none": "np.add(x, 1, None, where=m)",
    "partial": "partial(np.add, where=m)(x, 1)",
    "partial of partial": "partial(partial(np.add, where=m), x)(1)",
    "partial later": "partial(np.add, x)(1, where=m)",
    "outer": "np.add.outer(x, [1.0], where=m[:, None])[:, 0]",
    "call": "operator.call(np.add, x, 1, where=m)",
    "method": "operator.methodcaller('outer', x, [1.0], where=m[:, None])(np.add)[:, 0]",
    "errstate": "np.errstate()(np.add)(x, 1, where=m)",
    "own": "own(np.add, x, 1, where=m)",
    "two results": "np.divmod(x + 1, 1, where=m)[0]",
}
SOURCE = """
import operator
from functools import partial
import numpy as np

def own(function, *values, **named):
    return function(*values, **named)

def run(d):
    x, m = np.ones(300), np.arange(300) % 2 == 0
    dirty = [np.full(300, 7.5) for _ in range(99)]
    del dirty
    return {road}
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("road", ROADS)
def test_what_a_mask_leaves_out_is_zero(numeric_language, road):
    found = numeric_language.value(SOURCE.replace("{road}", ROADS[road]))
    values = memoryview(found.data).cast("B").cast("d").tolist()
    assert values == [2.0, 0.0] * 150


def test_given_output_keeps_what_the_mask_leaves_out(numeric_language):
    source = """
import numpy as np
def run(d):
    out = np.full(2, 5.0)
    np.add([1.0, 1.0], 1, out=out, where=[True, False])
    return out.tolist()
"""
    assert numeric_language.value(source) == [2.0, 5.0]


def test_own_function_may_call_a_parameter_where(language):
    source = (
        "def f(where): return where\ndef run(d): return [f(where=1), f(**{'where': 2})]"
    )
    assert language.value(source) == [1, 2]
