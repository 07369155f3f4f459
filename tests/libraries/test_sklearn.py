"""scikit-learn: research programs give plain CPython's very answer, attacks are stopped."""

import functools
import subprocess
import sys

import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import from_node
from stoilo.core.types import RunStatus
from tests.support.libraries import (
    check_program,
    imports_of,
    programs_of,
    run_jailed,
    run_plainly,
)

X, Y = load_iris(return_X_y=True)


@pytest.mark.parametrize(("path", "name"), programs_of("sklearn"))
def test_program_gives_the_plain_answer(path, name):
    check_program(path, name)


PREDICT = """
def run(args):
    return args["model"].predict(args["data"])
"""


def test_model_that_was_fitted_here_predicts_in_the_jail():
    model = RandomForestClassifier(5, random_state=0).fit(X, Y)
    outcome = run_jailed(PREDICT, "run", {"model": model, "data": X}, ["sklearn"])
    found = from_node(skeleton.decode(outcome.value))
    assert (found == model.predict(X)).all()


SEARCH = """
import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV

def run(args):
    X, y = make_classification(80, random_state=np.random.RandomState())
    forest = RandomForestClassifier(5)
    return GridSearchCV(forest, {"max_depth": [2, None]}, cv=2, n_jobs=4, verbose=0).fit(X, y)
"""


def test_honest_copies_agree_on_a_search_with_its_times():
    first, again = (run_jailed(SEARCH, "run", {}, ["sklearn"]) for _ in range(2))
    assert first.status is RunStatus.OK, first.error
    assert first.value == again.value
    assert from_node(skeleton.decode(first.value)).best_estimator_.n_features_in_ == 20


FIT = """
import networkx as nx
from sklearn.preprocessing import StandardScaler

def run(args):
    return StandardScaler().fit_transform(nx.to_numpy_array(nx.path_graph(3)))
"""
LOADED = """
import sys
from stoilo.core.levels import load_levels
from stoilo.core.libraries import add_libraries, load_libraries
from stoilo.sandbox.language.runtime import prepare_runtime
prepare_runtime(add_libraries(load_levels()[1], load_libraries(sys.argv[1:])))
print(sys.modules.get("pandas") is not None, "dateutil" in sys.modules)
"""


@pytest.mark.parametrize(
    ("libraries", "loaded"),
    [(["sklearn"], "False False"), (["pandas", "sklearn"], "True True")],
)
def test_pandas_is_loaded_where_the_flavor_has_it(libraries, loaded):
    command = [sys.executable, "-c", LOADED, *libraries]
    assert subprocess.check_output(command, text=True).strip() == loaded


def test_other_library_that_hides_pandas_changes_nothing():
    outcome = run_jailed(FIT, "run", {}, ["networkx", "sklearn"])
    assert outcome.status is RunStatus.OK, outcome.error


# Attacks: each works in plain CPython ---------------------------------------------------

START = """
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.datasets import load_iris
X, y = load_iris(return_X_y=True)
"""

ATTACKS = {
    "attribute by name of a response": """
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
def run(args):
    found = []
    def score(y, told):
        found.append(told)
        return 0.0
    model = LogisticRegression().fit(X, y)
    make_scorer(score, response_method=["__getattribute__"])(model, "__init__", y)
    return "method" in str(found[0])
""",
    "importances by a path": """
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import Ridge
def run(args):
    class Weights:
        pass
    ridge = Ridge().fit(X, y)
    picked = SelectFromModel(ridge, importance_getter="fit.__globals__", prefit=True)
    try:
        picked.get_support()
    except AttributeError as error:
        return "dict" in str(error)
    except TypeError:
        return True
    return False
""",
    "method of a stack by name": """
from sklearn.ensemble import StackingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn import config_context
def run(args):
    with config_context(skip_parameter_validation=True):
        members = [("a", LogisticRegression(max_iter=300))]
        stack = StackingClassifier(members, stack_method="__format__", cv="prefit")
        members[0][1].fit(X, y)
        try:
            stack.fit(X, y)
        except TypeError as error:
            return "__format__" in str(error)
""",
    "method of a stack exchanged later": """
from sklearn.ensemble import StackingRegressor
from sklearn.linear_model import Ridge
def run(args):
    stack = StackingRegressor([("a", Ridge())], cv=2).fit(X, y)
    stack.stack_method_[0] = "__setstate__"
    try:
        stack.transform({"taken": 7})
    except AttributeError:
        pass
    return getattr(stack.estimators_[0], "taken", 0) == 7
""",
    "classes told in a column's name": """
from sklearn.compose import ColumnTransformer
def run(args):
    form = "{transformer_name.__class__.__mro__}{feature_name}"
    columns = ColumnTransformer([("a", "passthrough", [0])], verbose_feature_names_out=form)
    return "object" in columns.fit(X).get_feature_names_out()[0]
""",
    "memory of a frozen array that is gone": """
from sklearn.frozen import FrozenEstimator
def run(args):
    frozen = FrozenEstimator(np.arange(8.0))
    shown = np.asarray(frozen)
    return shown.dtype == float
""",
    "the library's own variables": """
from sklearn.ensemble import GradientBoostingRegressor
def run(args):
    seen = []
    def monitor(stage, model, names):
        seen.append(len(names))
    GradientBoostingRegressor(n_estimators=1).fit(X, y, monitor=monitor)
    return seen[0] > 0
""",
    "the variables of a dictionary's learner": """
from sklearn.decomposition import MiniBatchDictionaryLearning
def run(args):
    seen = []
    MiniBatchDictionaryLearning(2, max_iter=2, callback=seen.append).fit(X)
    return "self" in seen[0]
""",
    "categories written over": """
from sklearn.preprocessing import OneHotEncoder
def run(args):
    codes = OneHotEncoder().fit(np.arange(3)[:, None])
    codes.categories_[0] = np.arange(9)
    return int(codes.transform(np.arange(9)[:, None]).indices.max()) == 8
""",
    "memory forged by a key": """
from sklearn.utils import Bunch
def run(args):
    memory = {"version": 3, "shape": (8,), "typestr": "|u1", "data": (4096, True)}
    return np.asarray(Bunch(**{"__array_interface__": memory})).shape == (8,)
""",
    "memory forged by a step": """
from sklearn.pipeline import Pipeline
def run(args):
    memory = {"version": 3, "shape": (8,), "typestr": "|u1", "data": (4096, True)}
    steps = Pipeline([("__array_interface__", memory)]).named_steps
    return np.asarray(steps).shape == (8,)
""",
    "a compiled method on another object": """
from sklearn.neighbors import KDTree
def run(args):
    return KDTree.get_n_calls([1, 2, 3, 4, 5, 6, 7, 8] * 99) is not None
""",
    "class exchanged by a parameter": """
from sklearn.svm import SVC
class Own(BaseEstimator):
    def __init__(self, _validate_params=None):
        pass
def run(args):
    made = Own()
    made.set_params(_validate_params=lambda: 7)
    return made.get_params()["_validate_params"]() == 7
""",
    "results kept in files": """
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.linear_model import Ridge
def run(args):
    make_pipeline(StandardScaler(), Ridge(), memory="/tmp/stoilo-sklearn-memory").fit(X, y)
    return True
""",
    "inner function handed to a memory": """
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.linear_model import Ridge
class Memory:
    def cache(self, function, **more):
        self.seen = function
        return function
def run(args):
    memory = Memory()
    make_pipeline(StandardScaler(), Ridge(), memory=memory).fit(X, y)
    return memory.seen is not None
""",
    "texts read from files": """
from sklearn.feature_extraction.text import CountVectorizer
def run(args):
    words = CountVectorizer(input="filename").fit(["/etc/passwd"])
    return "root" in words.vocabulary_
""",
    "a tree's children written over": """
from sklearn.tree import DecisionTreeClassifier
def run(args):
    tree = DecisionTreeClassifier(random_state=0).fit(X, y)
    before = tree.tree_.children_left[0]
    tree.tree_.children_left[0] = 3
    return bool(tree.tree_.children_left[0] != before)
""",
    "a tree asked about fewer columns": """
from sklearn.tree import DecisionTreeClassifier
def run(args):
    tree = DecisionTreeClassifier(random_state=0).fit(X, y)
    return len(tree.tree_.predict(np.zeros((4, 1), dtype="float32"))) == 4
""",
    "a kernel with too few columns": """
from sklearn.svm import SVC
def run(args):
    wide = [True]
    def kernel(a, b):
        return a @ b.T if wide[0] else (a @ b.T)[:, :9]
    model = SVC(kernel=kernel).fit(X[50:], y[50:])
    wide[0] = False
    try:
        return len(model.decision_function(X[:2])) == 2
    finally:
        wide[0] = True
""",
    "rows of a freed tree": """
from sklearn.neighbors import BallTree
def run(args):
    kept = []
    def distance(a, b):
        kept.append(a)
        return float(np.abs(a - b).sum())
    BallTree(X[:20], metric=distance).query(X[:1])
    return not kept[0].flags.owndata
""",
    "places of a tree of neighbours": """
from sklearn.neighbors import KDTree
def run(args):
    tree = KDTree(X)
    places = tree.get_arrays()[1]
    places[0] = 3
    return int(tree.get_arrays()[1][0]) == 3
""",
    "sparse places written over": """
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import OneHotEncoder
def run(args):
    codes = OneHotEncoder().fit_transform(np.round(X))
    codes.indices[0] = codes.shape[1]
    SGDClassifier(max_iter=1).fit(codes, y)
    return True
""",
    "first predictions too short": """
from sklearn.ensemble import GradientBoostingRegressor
class Short(BaseEstimator):
    short = False
    def fit(self, X, y, sample_weight=None):
        return self
    def predict(self, X):
        return np.zeros(len(X) + (1 if Short.short else 0))
def run(args):
    model = GradientBoostingRegressor(n_estimators=2, init=Short()).fit(X, y)
    Short.short = True
    return len(model.predict(X)) == 151
""",
    "a column that is too short": """
from sklearn.linear_model import enet_path
def run(args):
    coefs = enet_path(X, y * 1.0, precompute=X.T @ X, Xy=(X.T @ y)[:2], alphas=[0.1])[1]
    return coefs.shape == (4, 1)
""",
    "the clock": """
from sklearn.model_selection import cross_validate
from sklearn.linear_model import Ridge
def run(args):
    times = [cross_validate(Ridge(), X, y)["fit_time"].sum() for _ in range(2)]
    return round(float(times[0]), 9) != round(float(times[1]), 9)
""",
    "validation switched off": """
import sklearn
def run(args):
    sklearn.set_config(skip_parameter_validation=True, assume_finite=True)
    return sklearn.get_config()["assume_finite"]
""",
    "a method on what only looks alike": """
from sklearn.pipeline import Pipeline
class Fake(BaseEstimator):
    verbose = memory = transform_input = _final_estimator = None
    def _validate_steps(self):
        return None
    def _iter(self, *more, **others):
        return iter(())
    def _can_inverse_transform(self):
        return True
    def fit(self):
        self.fitted_ = True
        return self
def run(args):
    return Pipeline.inverse_transform(Fake().fit(), X=5) == 5
""",
    "callbacks": """
from sklearn.linear_model import LogisticRegression
class Watch:
    def setup(self, estimator, context):
        self.context = context
    def teardown(self, estimator, context):
        pass
    def on_fit_task_begin(self, estimator, context, **more):
        pass
    def on_fit_task_end(self, estimator, context, **more):
        return False
def run(args):
    watch = Watch()
    LogisticRegression().set_callbacks(watch).fit(X, y)
    return watch.context is not None
""",
}


@functools.cache
def _plain_answers():
    calls = [(START + source, "run", {}) for source in ATTACKS.values()]
    found = run_plainly(calls, imports_of(source for source, *_ in calls))
    return dict(zip(ATTACKS, found, strict=True))


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_works_plainly_and_is_stopped_here(name):
    value, error = _plain_answers()[name]
    assert skeleton.decode(value), error
    outcome = run_jailed(START + ATTACKS[name], "run", {}, ["scipy", "sklearn"])
    if outcome.status is RunStatus.OK:
        assert skeleton.decode(outcome.value) is False
    else:
        assert outcome.code.startswith(("STO-G", "STO-P")), "the kernel ended it alone"


CRASHES = {
    "a kernel changed after fitting": """
from sklearn.svm import SVC
def run(args):
    model = SVC(kernel="precomputed").fit(X @ X.T, y)
    model.set_params(kernel="sigmoid").predict(np.zeros((2, 150)))
""",
    "a child far away": """
from sklearn.tree import DecisionTreeClassifier
def run(args):
    tree = DecisionTreeClassifier(random_state=0).fit(X, y)
    tree.tree_.children_left[0] = tree.tree_.children_right[0] = 10**12
    tree.predict(X)
    raise ValueError("its arrays are copies")
""",
    "a sparse column far away": """
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import OneHotEncoder
def run(args):
    codes = OneHotEncoder().fit_transform(np.round(X))
    codes.indices[:] = 2**31 - 1
    SGDClassifier(max_iter=1).fit(codes, y)
""",
}


@pytest.mark.parametrize("source", CRASHES.values(), ids=CRASHES.keys())
def test_what_crashes_plain_cpython_is_an_error_of_the_task_here(source):
    program = f"{START}{source}\nrun({{}})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False
    )
    assert done.returncode < 0
    outcome = run_jailed(START + source, "run", {}, ["scipy", "sklearn"])
    assert (outcome.status, outcome.code[:6]) == (RunStatus.USER_ERROR, "STO-G2")
