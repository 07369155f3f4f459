"""Values of libraries on the whole path, both ways, and what a researcher is told."""

import asyncio
import threading

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageOps
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import stoilo
from stoilo.low_level.redundancy import CreateOptions

pytestmark = pytest.mark.slow
QUORUM = CreateOptions(min_quorum=2, max_total_results=5)


def _table():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=80), "y": rng.normal(size=80)})
    table["kind"] = pd.Categorical(list("abcd") * 20)
    table["day"] = pd.date_range("2024", periods=80, tz="UTC")
    table["label"] = (table["x"] + table["y"] > 0).astype(int)
    return table


@pytest.fixture(scope="module")
def ask():
    local = stoilo.local(volunteers=2)
    address = local.start()

    def result(function, options=None, /, **kwargs):
        async def wait():
            async with stoilo.connect(address) as conn:
                task = conn.create_task(function, kwargs, **(options or {}))
                return await task.result()

        return asyncio.run(wait())

    yield result
    local.stop()


def sums(call):
    groups = call["table"].groupby("kind", observed=True)[["x", "y"]].sum()
    return groups, call["table"].set_index("day").tail(3)


def test_frames_go_in_and_come_out(ask):
    for found, here in zip(
        ask(sums, table=_table()), sums({"table": _table()}), strict=True
    ):
        pd.testing.assert_frame_equal(found, here)


def train(call):
    table = call["table"]
    forest = RandomForestClassifier(10, random_state=0)
    return make_pipeline(StandardScaler(), forest).fit(
        table[["x", "y"]], table["label"]
    )


def test_two_hosts_agree_on_a_model_that_predicts_the_same_at_home(ask):
    table = _table()
    model = ask(train, {"redundancy_options": QUORUM}, table=table)
    here = train({"table": table}).predict_proba(table[["x", "y"]])
    assert (model.predict_proba(table[["x", "y"]]) == here).all()


def square(call):
    return (call["matrix"] @ call["matrix"].T).tocsr()


def test_a_sparse_array_goes_in_and_comes_out(ask):
    matrix = sparse.random_array((20, 9), density=0.2, rng=1, format="csc")
    assert abs(ask(square, matrix=matrix) - square({"matrix": matrix})).nnz == 0


def shrink(call):
    return ImageOps.autocontrast(call["image"].convert("L")).resize((8, 8))


def test_an_image_goes_in_and_comes_out(ask):
    shades = np.arange(32 * 32 * 3, dtype=np.uint8).reshape(32, 32, 3)
    image = Image.fromarray(shades)
    assert ask(shrink, image=image).tobytes() == shrink({"image": image}).tobytes()


def integral(_call):
    import sympy  # noqa: PLC0415 - part of the task

    x = sympy.symbols("x")
    return str(sympy.integrate(sympy.exp(-x) * sympy.sin(x), x))


def test_a_formula_comes_out_as_text(ask):
    assert ask(integral) == integral({})


def jittered(_call):
    return pd.DataFrame({"v": [1.0, 2.0]})


def has_a_column(frame):
    return list(frame.columns) == ["v"]


def is_close(one, other):
    return bool((one["v"] - other["v"]).abs().max() < 1e-9)


def test_validators_get_frames(ask):
    options = {"init_valid_func": has_a_column, "compare_valid_func": is_close}
    found = ask(jittered, options | {"redundancy_options": QUORUM})
    pd.testing.assert_frame_equal(found, jittered({}))


def echo(call):
    return call["value"]


def boosted(_call):
    import xgboost  # noqa: PLC0415 - what is refused

    return xgboost.__version__


def solved(_call):
    from scipy import linalg  # noqa: PLC0415 - part of the task

    return linalg.det(np.eye(2))


def score(call):
    return LogisticRegression().fit(call["value"], [0, 1]).coef_


REFUSED = [
    (
        boosted,
        {},
        {},
        [
            "test_library_values.py:",
            "module xgboost is not open",
            "stoilo flavor describe xgboost",
        ],
    ),
    (
        solved,
        {"flavor": "numeric"},
        {},
        ["flavor numeric lacks scipy", "leave flavor= out", "scipy (level"],
    ),
    (
        echo,
        {"flavor": "scipy"},
        {"value": _table()},
        ["flavor scipy lacks pandas", "science"],
    ),
    (score, {"level": "pure"}, {"value": 1}, ["line ", "level numeric has it"]),
    (
        echo,
        {},
        {"value": pd.DataFrame({"a": [1, threading.Lock()]})},
        ["kwargs['value']", "column 'a'", "type lock"],
    ),
]


@pytest.mark.parametrize(("function", "options", "kwargs", "texts"), REFUSED)
def test_a_refusal_says_what_why_and_what_to_do(ask, function, options, kwargs, texts):
    with pytest.raises(stoilo.StoiloError) as caught:
        ask(function, options, **kwargs)
    assert [text for text in texts if text not in str(caught.value)] == []
