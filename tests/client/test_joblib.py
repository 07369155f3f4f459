"""joblib's calls on a fake server that runs them in the real jail."""

from __future__ import annotations

import math
import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Ridge
from sklearn.metrics import check_scoring, make_scorer, mean_squared_error
from sklearn.model_selection import cross_val_score
from sklearn.model_selection._validation import _fit_and_score

import stoilo
import stoilo.joblib
from stoilo.client.session import Journal
from stoilo.core.types import TaskState
from stoilo.learn.kernels.search import fit_and_score
from stoilo.testing.service import FakeTaskService, Outcome
from tests.support.jailed import JailAnswerer


@pytest.fixture
def served(fake_thread: Any, in_jail: JailAnswerer) -> Any:
    return fake_thread(FakeTaskService(in_jail))


@pytest.fixture
def conn(served: Any) -> Iterator[stoilo.SyncConnection]:
    with stoilo.connect_sync(served.address, journal=Journal(None)) as connection:
        yield connection


def shift(value: int, by: int = 1) -> int:
    return value + by


def divide(value: int) -> float:
    return 1 / value


def test_calls_come_back_in_order_and_share_tasks(conn: Any, served: Any) -> None:
    with joblib.parallel_config("stoilo", conn=conn):
        found = joblib.Parallel()(joblib.delayed(shift)(n, by=2) for n in range(300))
    assert found == list(range(2, 302))
    assert 1 <= len(served.service.tasks) < 100


@pytest.mark.parametrize("options", [{"batch_size": 3}, {"return_as": "generator"}])
def test_batches_and_generators_are_joblibs_own(conn: Any, options: Any) -> None:
    with joblib.parallel_config("stoilo", conn=conn, n_jobs=4):
        found = joblib.Parallel(**options)(joblib.delayed(abs)(-n) for n in range(20))
        assert list(found) == list(range(20))


def test_functions_mixed_in_a_batch_keep_their_places(conn: Any) -> None:
    calls = [joblib.delayed((shift, abs)[n % 2])(-n) for n in range(9)]
    with joblib.parallel_config("stoilo", conn=conn):
        assert joblib.Parallel(batch_size=3)(calls) == [1, 1, -1, 3, -3, 5, -5, 7, -7]


def test_one_refused_function_ends_the_batch(conn: Any) -> None:
    calls = [joblib.delayed(shift)(1), joblib.delayed(divide)(threading.Lock())]
    with (
        joblib.parallel_config("stoilo", conn=conn),
        pytest.raises(stoilo.StoiloError, match="lock"),
    ):
        joblib.Parallel(batch_size=2)(calls)


WATCHED = """
import pickle, sys
noted = []
sys.addaudithook(lambda event, _: noted.append(event) if event == "pickle.find_class" else None)
import joblib, stoilo, stoilo.joblib
before = len(noted)
with stoilo.connect_sync(stoilo.Address({target!r}, {token!r}, None, "fake")) as conn:
    with joblib.parallel_config("stoilo", conn=conn):
        print(joblib.Parallel()(joblib.delayed(abs)(-n) for n in range(3)))
print(len(noted) - before)
pickle.loads(pickle.dumps(print))
print(len(noted) - before)
"""


def test_nothing_is_unpickled_on_the_way(served: Any, tmp_path: Path) -> None:
    code = WATCHED.format(target=served.address.target, token=served.address.token)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    # The last is the control: the hook sees what is unpickled.
    assert done.stdout.split("\n") == ["[0, 1, 2]", "0", "1", ""], done.stderr


def test_one_job_stays_at_home(conn: Any, served: Any) -> None:
    with joblib.parallel_config("stoilo", conn=conn, n_jobs=1):
        assert joblib.Parallel()([joblib.delayed(shift)(1)]) == [2]
    assert len(served.service.tasks) == 0


def test_the_functions_error_is_raised_as_what_it_was(conn: Any) -> None:
    with joblib.parallel_config("stoilo", conn=conn), pytest.raises(ZeroDivisionError):
        joblib.Parallel()(joblib.delayed(divide)(n) for n in (2, 1, 0))


def test_what_cannot_travel_is_refused_by_name(conn: Any) -> None:
    lock = threading.Lock()
    with (
        joblib.parallel_config("stoilo", conn=conn),
        pytest.raises(stoilo.StoiloError, match="lock") as caught,
    ):
        joblib.Parallel()([joblib.delayed(shift)(lock)])
    assert caught.value.code == "STO-C010"


def test_a_public_part_of_a_library_travels(conn: Any, served: Any) -> None:
    with joblib.parallel_config("stoilo", conn=conn):
        assert joblib.Parallel()(joblib.delayed(math.sqrt)(n) for n in (4, 9)) == [2, 3]
    assert len(served.service.tasks) == 1


def test_a_private_part_of_a_library_runs_here_with_one_warning(
    conn: Any, served: Any
) -> None:
    x, y = [[n, n % 3] for n in range(12)], [n % 2 for n in range(12)]
    forest = RandomForestClassifier(20, random_state=0)
    with (
        warnings.catch_warnings(record=True) as told,
        joblib.parallel_config("stoilo", conn=conn),
    ):
        warnings.simplefilter("always")
        trees = forest.fit(x, y).predict_proba(x)
    texts = [str(one.message) for one in told]
    assert (
        len([text for text in texts if "_parallel_build_trees runs here" in text]) == 1
    )
    assert (trees == forest.set_params(n_jobs=1).fit(x, y).predict_proba(x)).all()
    assert len(served.service.tasks) == 0


def test_a_timeout_cancels_at_the_server(fake_thread: Any, wait_until: Any) -> None:
    service = FakeTaskService(lambda _r, _s: Outcome.of(1), polls=10_000)
    address = fake_thread(service).address
    with (
        stoilo.connect_sync(address, journal=Journal(None)) as conn,
        joblib.parallel_config("stoilo", conn=conn),
    ):
        with pytest.raises(multiprocessing.TimeoutError):
            joblib.Parallel(timeout=0.5)(joblib.delayed(shift)(n) for n in range(3))
        wait_until(
            lambda: (
                {task.state for task in service.tasks.values()} == {TaskState.CANCELLED}
            )
        )


def squares(estimator: Any, x: Any, y: Any) -> dict[str, float]:
    return {"one": float(((estimator.predict(x) - y) ** 2).mean()), "two": 2.0}


def minus(estimator: Any, x: Any, y: Any) -> float:
    return -squares(estimator, x, y)["one"]


LOSS = make_scorer(mean_squared_error, greater_is_better=False)


@pytest.mark.parametrize(
    "scoring",
    [None, "r2", LOSS, minus, squares, {"a": "r2", "score": LOSS}, {"score": "r2"}],
)
@pytest.mark.parametrize("alpha", [0.5, -1.0])
def test_a_fit_by_public_names_is_the_librarys_own(scoring: Any, alpha: float) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    told: dict[str, Any] = {
        "scorer": scoring
        if callable(scoring)
        else check_scoring(Ridge(), scoring, raise_exc=False),
        "train": np.arange(20),
        "test": np.arange(20, 30),
        "parameters": {"alpha": alpha},
        "fit_params": {"sample_weight": rng.uniform(size=30)},
        "score_params": {},
        "error_score": np.nan,
        "return_train_score": True,
        "return_n_test_samples": True,
        "return_parameters": True,
    }
    call = stoilo.joblib._search_call("_fit_and_score", Ridge(), x, y, **told)
    found = call.finish(fit_and_score(call.values))
    real = _fit_and_score(Ridge(), x, y, verbose=0, **told)
    errors = found.pop("fit_error"), real.pop("fit_error")
    assert repr(found) == repr(real)
    assert (errors[0] is None) is (errors[1] is None) is (alpha > 0)
    if alpha < 0:
        assert errors[0] == errors[1].splitlines()[-1]


def test_an_error_is_raised_where_the_search_wants_that() -> None:
    told: dict[str, Any] = {"train": [0, 1], "test": [2], "error_score": "raise"}
    told |= {"scorer": minus, "parameters": {"alpha": -1.0}}
    call = stoilo.joblib._search_call(
        "", Ridge(), np.ones((3, 1)), np.arange(3.0), **told
    )
    with pytest.raises(ValueError, match="alpha"):
        fit_and_score(call.values)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"transform_output": "pandas"}, "transform_output"),
        ({"enable_metadata_routing": True}, "enable_metadata_routing"),
    ],
)
def test_a_search_under_other_settings_stays_here(
    conn: Any, served: Any, settings: Any, named: str
) -> None:
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    with (
        sklearn.config_context(**settings),
        joblib.parallel_config("stoilo", conn=conn),
        pytest.warns(RuntimeWarning, match=named),
    ):
        assert cross_val_score(Ridge(), x, y, cv=2).shape == (2,)
    assert len(served.service.tasks) == 0
