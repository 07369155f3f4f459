"""Estimators travel: what comes back predicts the same; hostile state is refused by name."""

import msgspec
import numpy as np
import pytest
from sklearn import (
    cluster,
    compose,
    covariance,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_extraction,
    feature_selection,
    gaussian_process,
    impute,
    isotonic,
    kernel_ridge,
    linear_model,
    mixture,
    model_selection,
    multiclass,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)
from sklearn.datasets import make_classification

from stoilo.core.codec import reader, skeleton
from stoilo.core.codec.nodes import Ndarray, from_node, to_node
from stoilo.core.errors import TrustError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore")

X, Y = make_classification(90, 6, n_informative=4, n_classes=3, random_state=0)
TWO = (Y > 0).astype(int)
PLACES = np.abs(X)
WORDS = ["a cat", "a dog and a cat", "no dog", "one cat or two", "two dogs"] * 18

CLASSIFIERS = [
    discriminant_analysis.LinearDiscriminantAnalysis(),
    discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=0.1),
    ensemble.AdaBoostClassifier(n_estimators=4, random_state=0),
    ensemble.BaggingClassifier(n_estimators=3, random_state=0),
    ensemble.ExtraTreesClassifier(5, random_state=0),
    ensemble.GradientBoostingClassifier(n_estimators=4, random_state=0),
    ensemble.RandomForestClassifier(5, random_state=np.random.RandomState(3)),
    ensemble.StackingClassifier([("nb", naive_bayes.GaussianNB())], cv=2),
    ensemble.VotingClassifier([("t", tree.DecisionTreeClassifier(random_state=0))]),
    linear_model.LogisticRegression(),
    linear_model.Perceptron(random_state=0),
    linear_model.RidgeClassifier(),
    linear_model.SGDClassifier(loss="modified_huber", random_state=0),
    model_selection.GridSearchCV(
        tree.DecisionTreeClassifier(random_state=0),
        {"max_depth": [2, 3]},
        cv=model_selection.StratifiedKFold(2),
    ),
    multiclass.OneVsRestClassifier(svm.LinearSVC(random_state=0)),
    multiclass.OneVsOneClassifier(svm.SVC()),
    naive_bayes.BernoulliNB(),
    naive_bayes.GaussianNB(),
    neighbors.KNeighborsClassifier(3),
    neighbors.KNeighborsClassifier(2, algorithm="brute"),
    neighbors.NearestCentroid(),
    neural_network.MLPClassifier((4,), max_iter=5, random_state=0),
    pipeline.make_pipeline(preprocessing.StandardScaler(), svm.SVC(kernel="poly")),
    pipeline.make_pipeline(decomposition.PCA(3), naive_bayes.GaussianNB()),
    pipeline.make_pipeline(
        feature_selection.SelectKBest(feature_selection.f_classif, k=2),
        linear_model.LogisticRegression(),
    ),
    svm.NuSVC(nu=0.1),
    svm.SVC(kernel="linear"),
    tree.DecisionTreeClassifier(random_state=0),
    tree.ExtraTreeClassifier(random_state=0),
]
REGRESSORS = [
    compose.TransformedTargetRegressor(
        linear_model.Ridge(), func=np.log1p, inverse_func=np.expm1
    ),
    ensemble.ExtraTreesRegressor(4, random_state=0),
    ensemble.GradientBoostingRegressor(n_estimators=4, loss="huber", random_state=0),
    ensemble.RandomForestRegressor(4, random_state=0),
    gaussian_process.GaussianProcessRegressor(
        gaussian_process.kernels.RBF() + gaussian_process.kernels.WhiteKernel()
    ),
    kernel_ridge.KernelRidge(),
    linear_model.BayesianRidge(),
    linear_model.HuberRegressor(),
    linear_model.Lasso(0.01),
    linear_model.LinearRegression(),
    linear_model.PoissonRegressor(),
    linear_model.RANSACRegressor(random_state=0),
    linear_model.Ridge(),
    linear_model.SGDRegressor(random_state=0),
    neighbors.KNeighborsRegressor(4, weights="distance", algorithm="ball_tree"),
    neural_network.MLPRegressor(hidden_layer_sizes=(3,), max_iter=4, random_state=0),
    svm.SVR(),
    tree.DecisionTreeRegressor(max_depth=4, random_state=0),
]
TRANSFORMERS = [
    compose.ColumnTransformer(
        [("a", preprocessing.MinMaxScaler(), [0, 1]), ("b", "passthrough", [2])]
    ),
    compose.make_column_transformer(
        (preprocessing.OneHotEncoder(sparse_output=False, handle_unknown="ignore"), [0])
    ),
    decomposition.FastICA(2, random_state=0),
    decomposition.KernelPCA(2, kernel="rbf"),
    decomposition.TruncatedSVD(2, random_state=0),
    impute.KNNImputer(),
    impute.SimpleImputer(),
    pipeline.make_union(preprocessing.MaxAbsScaler(), preprocessing.RobustScaler()),
    preprocessing.FunctionTransformer(np.log1p),
    preprocessing.KBinsDiscretizer(3, encode="onehot-dense", quantile_method="linear"),
    preprocessing.PolynomialFeatures(2),
    preprocessing.PowerTransformer(),
    preprocessing.QuantileTransformer(n_quantiles=10),
]


def _name(value):
    return type(value).__name__


def _travel(value, references=False):
    bounds = reader.DEFAULT_BOUNDS if references else reader.DATA_BOUNDS
    return from_node(skeleton.decode(skeleton.encode(to_node(value)), bounds))


@pytest.mark.parametrize("model", CLASSIFIERS, ids=_name)
def test_fitted_classifier_predicts_the_same_afterwards(model):
    model.fit(X, Y)
    back = _travel(model)
    assert type(back) is type(model)
    assert (back.predict(X) == model.predict(X)).all()
    if hasattr(model, "predict_proba"):
        assert (back.predict_proba(X) == model.predict_proba(X)).all()


@pytest.mark.parametrize("model", REGRESSORS, ids=_name)
def test_fitted_regressor_predicts_the_same_afterwards(model):
    model.fit(X, PLACES[:, 0])
    assert (_travel(model).predict(X) == model.predict(X)).all()


@pytest.mark.parametrize("model", TRANSFORMERS, ids=_name)
def test_fitted_transformer_transforms_the_same_afterwards(model):
    model.fit(PLACES)
    assert (_travel(model).transform(PLACES) == model.transform(PLACES)).all()


@pytest.mark.parametrize(
    "model",
    [
        cluster.KMeans(3, n_init=1, random_state=0),
        mixture.GaussianMixture(2, random_state=0),
        neighbors.NearestNeighbors(n_neighbors=2),
        covariance.LedoitWolf(),
        svm.OneClassSVM(),
    ],
    ids=_name,
)
def test_other_fitted_models_come_back_whole(model):
    back = _travel(model.fit(X))
    assert vars(back).keys() >= {name for name in vars(model) if name.endswith("_")}
    if hasattr(model, "predict"):
        assert (back.predict(X) == model.predict(X)).all()


@pytest.mark.parametrize(
    "model", [*CLASSIFIERS[:4], *REGRESSORS, *TRANSFORMERS], ids=_name
)
def test_unfitted_model_comes_back_with_its_parameters(model):
    fresh = type(model)(**model.get_params(deep=False))
    assert repr(_travel(fresh)) == repr(fresh)


def test_texts_are_weighed_the_same_afterwards():
    model = feature_extraction.text.TfidfVectorizer(ngram_range=(1, 2)).fit(WORDS)
    back = _travel(model)
    assert (back.transform(WORDS) != model.transform(WORDS)).nnz == 0


def test_categories_of_texts_come_back():
    table = np.array([["red", 1], ["blue", 2], ["red", 3]], dtype=object)
    model = preprocessing.OneHotEncoder(drop="first").fit(table)
    assert (_travel(model).transform(table) != model.transform(table)).nnz == 0


def test_steps_come_back():
    model = isotonic.IsotonicRegression().fit(np.arange(9.0), np.arange(9.0) % 4)
    assert (_travel(model).predict([2.5]) == model.predict([2.5])).all()


def test_generators_go_on_where_they_were():
    model = linear_model.Ridge(random_state=np.random.RandomState(5))
    model.random_state.standard_normal(3)
    back = _travel(model)
    assert back.random_state.standard_normal() == model.random_state.standard_normal()


@pytest.mark.parametrize(
    "model",
    [
        ensemble.HistGradientBoostingClassifier(max_iter=2),
        cluster.Birch(),
        svm.SVC(kernel=lambda a, b: a @ b.T),
        pipeline.make_pipeline(linear_model.Ridge(), memory="/tmp/x"),
        preprocessing.FunctionTransformer(lambda x: x),
        cluster.KMeans,
    ],
    ids=["histograms", "birch", "kernel", "memory", "lambda", "class"],
)
def test_what_does_not_travel_is_refused_by_name(model):
    if hasattr(model, "fit") and not isinstance(model, type):
        model.fit(X, Y)
    with pytest.raises((UsageError, TrustError)):
        _travel(model)


# Hostile state --------------------------------------------------------------------------


def _changed(model, path, change):
    """Return the node of `model` with `change` applied to what lies at `path`."""

    def walk(node, rest):
        if not rest:
            return change(node)
        if isinstance(node, (list, tuple)):
            items = list(node)
            items[rest[0]] = walk(items[rest[0]], rest[1:])
            return type(node)(items)
        state = dict(node.state)
        state[rest[0]] = walk(state.get(rest[0]), rest[1:])
        return msgspec.structs.replace(node, state=state)

    return walk(to_node(model), path)


def _array(change):
    def changed(node):
        made = np.frombuffer(bytes(node.data), node.dtype).reshape(node.shape).copy()
        made = change(made)
        return Ndarray(node.dtype, made.shape, made.tobytes())

    return changed


def _put(place, value):
    def change(array):
        array.reshape(-1)[place] = value
        return array

    return _array(change)


TREE = tree.DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, Y)
FOREST = ensemble.RandomForestClassifier(2, random_state=0).fit(X, Y)
BOOST = ensemble.GradientBoostingClassifier(n_estimators=2, random_state=0).fit(X, Y)
SVC = svm.SVC().fit(X, Y)
ROWS = svm.SVC(kernel="precomputed").fit(X @ X.T, Y)
MEANS = cluster.KMeans(3, n_init=1, random_state=0).fit(X)
NEAR = neighbors.KNeighborsClassifier(algorithm="brute").fit(X, Y)
DESCENT = linear_model.SGDClassifier(random_state=0).fit(X, Y)
CODES = preprocessing.OneHotEncoder().fit(np.round(X))
TEXT = feature_extraction.text.CountVectorizer().fit(WORDS)
POWERS = preprocessing.PolynomialFeatures(2).fit(X)
STACK = ensemble.StackingClassifier([("n", naive_bayes.GaussianNB())], cv=2).fit(X, Y)
CHOSEN = feature_selection.SelectFromModel(linear_model.Ridge()).fit(X, Y)
SCALER = preprocessing.StandardScaler().fit(X)
PIPE = pipeline.make_pipeline(preprocessing.StandardScaler())

HOSTILE = {
    "child outside": (TREE, ("tree_", "left_child"), _put(0, 10**9)),
    "child before its parent": (TREE, ("tree_", "right_child"), _put(0, 0)),
    "negative child": (TREE, ("tree_", "left_child"), _put(0, -7)),
    "shared child": (
        TREE,
        ("tree_", "left_child"),
        _put(0, int(TREE.tree_.children_right[0])),
    ),
    "one child": (TREE, ("tree_", "left_child"), _put(0, -1)),
    "column outside": (TREE, ("tree_", "feature"), _put(0, 99)),
    "values missing": (TREE, ("tree_", "values"), _array(lambda a: a[:-1])),
    "room for no path": (TREE, ("tree_", "depth"), lambda _: 1),
    "tree over other columns": (TREE, ("n_features_in_",), lambda _: 2),
    "member over other columns": (
        FOREST,
        ("estimators_", 0, "n_features_in_"),
        lambda _: 3,
    ),
    "stages of other classes": (BOOST, ("n_classes_",), lambda _: 2),
    "no first predictions": (BOOST, ("init_",), lambda _: to_node(SCALER)),
    "counts of vectors": (SVC, ("_n_support",), _put(0, 10**6)),
    "vectors cut": (SVC, ("support_vectors_",), _array(lambda a: a[:, :2])),
    "coefficients cut": (SVC, ("_dual_coef_",), _array(lambda a: a[:, :3])),
    "sample outside": (ROWS, ("support_",), _put(0, 10**6)),
    "rows read as vectors": (ROWS, ("kernel",), lambda _: "linear"),
    "centres of other columns": (
        MEANS,
        ("cluster_centers_",),
        _array(lambda a: a[:, :2]),
    ),
    "label of no class": (NEAR, ("_y",), _put(0, 10**6)),
    "neighbours of other columns": (NEAR, ("_fit_X",), _array(lambda a: a[:, :2])),
    "categories not in order": (CODES, ("categories_", 0), _array(lambda a: a[::-1])),
    "coefficients of fewer columns": (
        DESCENT,
        ("coef_",),
        _array(lambda a: a[:, :2]),
    ),
    "intercepts of fewer classes": (
        DESCENT,
        ("intercept_",),
        _array(lambda a: a[:1]),
    ),
    "word far outside": (TEXT, ("vocabulary_",), lambda one: one | {"x": 10**6}),
    "powers of many columns": (POWERS, ("_n_out_full",), lambda _: 10**6),
    "method of a stack": (STACK, ("stack_method_",), lambda _: ["__init__"]),
    "importances by path": (
        CHOSEN,
        ("importance_getter",),
        lambda _: "fit.__globals__",
    ),
    "files kept": (PIPE, ("memory",), lambda _: "/tmp/x"),
    "files read": (TEXT, ("input",), lambda _: "filename"),
    "private name": (SCALER, ("_validate_params",), lambda _: 1),
    "special name": (SCALER, ("__class__",), lambda _: 1),
    "method's name": (SCALER, ("transform",), lambda _: 1),
    "free name": (SCALER, ("free",), lambda _: 1),
}


@pytest.mark.parametrize("case", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_state_is_refused(case):
    node = _changed(*case)
    with pytest.raises(TrustError) as caught:
        from_node(node)
    assert caught.value.code == "STO-D002"
