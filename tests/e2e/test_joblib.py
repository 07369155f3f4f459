"""scikit-learn's own searches on two volunteers, who have to agree, to the last bit."""

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import FitFailedWarning
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import stoilo
import stoilo.joblib
from stoilo.low_level.redundancy import CreateOptions

pytestmark = pytest.mark.slow
QUORUM = CreateOptions(min_quorum=2, max_total_results=5)
DIGITS, LABELS = load_digits(return_X_y=True)


@pytest.fixture(scope="module")
def conn():
    with stoilo.local(volunteers=2) as connection:
        yield connection


@pytest.fixture
def on_volunteers(conn):
    """Return what fits there; it fails unless that made tasks."""

    def fit(search):
        before = len(conn.list_tasks(limit=1000))
        with joblib.parallel_config("stoilo", conn=conn, redundancy_options=QUORUM):
            search.fit(DIGITS, LABELS)
        assert len(conn.list_tasks(limit=1000)) > before
        return search

    return fit


def own_score(model, x, y):
    return {"hits": float((model.predict(x) == y).mean()), "half": 0.5}


def make_searches():
    scaled = make_pipeline(StandardScaler(), SVC())
    forest = RandomForestClassifier(random_state=0)
    table = {"hits": "accuracy", "f1": make_scorer(f1_score, average="macro")}
    sizes = {"n_estimators": [5, 10], "max_depth": [3, None]}
    return {
        "grid": GridSearchCV(
            scaled, {"svc__C": [0.1, 1]}, cv=3, return_train_score=True
        ),
        "several": GridSearchCV(SVC(), {"C": [1]}, cv=2, scoring=table, refit="f1"),
        "own": GridSearchCV(SVC(), {"C": [1]}, cv=2, scoring=own_score, refit="hits"),
        "random": RandomizedSearchCV(forest, sizes, n_iter=3, cv=2, random_state=0),
    }


def bits(search):
    """Return the results' columns but for times, floats as bytes."""
    columns = {
        name: column
        for name, column in search.cv_results_.items()
        if not name.endswith("_time")
    }
    return {
        name: column.tobytes() if np.asarray(column).dtype.kind == "f" else [*column]
        for name, column in columns.items()
    }


@pytest.mark.filterwarnings("ignore:.*_parallel_build_trees runs here")
@pytest.mark.parametrize("name", ["grid", "several", "own", "random"])
def test_a_search_is_the_local_one_to_the_bit(on_volunteers, name):
    here, there = make_searches()[name], on_volunteers(make_searches()[name])
    here.fit(DIGITS, LABELS)
    assert bits(there) == bits(here)
    assert there.best_params_ == here.best_params_
    assert (there.predict(DIGITS) == here.predict(DIGITS)).all()


def test_negative_control_another_fold_is_another_search(on_volunteers):
    here, there = make_searches()["grid"], on_volunteers(make_searches()["grid"])
    assert bits(here.set_params(cv=2).fit(DIGITS, LABELS)) != bits(there)


def test_fits_that_fail_are_the_searchs_own_affair(on_volunteers):
    with (
        pytest.warns(FitFailedWarning, match="2 fits failed"),
        pytest.warns(UserWarning, match="non-finite"),
    ):
        there = on_volunteers(GridSearchCV(SVC(), {"C": [1, -1]}, cv=2))
    assert np.isnan(there.cv_results_["mean_test_score"]).tolist() == [False, True]


def test_fitted_models_come_back(conn):
    with joblib.parallel_config("stoilo", conn=conn):
        there = cross_validate(SVC(), DIGITS, LABELS, cv=2, return_estimator=True)
    here = cross_validate(SVC(), DIGITS, LABELS, cv=2, return_estimator=True)
    for mine, theirs in zip(here["estimator"], there["estimator"], strict=True):
        assert (mine.predict(DIGITS) == theirs.predict(DIGITS)).all()
