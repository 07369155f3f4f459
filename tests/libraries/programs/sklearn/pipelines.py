"""Pipelines, searches, own estimators, columns, text."""

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    TransformerMixin,
    clone,
)
from sklearn.compose import (
    ColumnTransformer,
    TransformedTargetRegressor,
    make_column_transformer,
)
from sklearn.datasets import load_diabetes, load_iris, make_classification
from sklearn.experimental import enable_iterative_imputer
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.feature_selection import (
    RFE,
    SelectFromModel,
    SelectKBest,
    SequentialFeatureSelector,
    VarianceThreshold,
    f_classif,
    mutual_info_classif,
)
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    RandomizedSearchCV,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
    validation_curve,
)
from sklearn.naive_bayes import ComplementNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    LabelEncoder,
    MinMaxScaler,
    MultiLabelBinarizer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data

TEXTS = [
    "the cat sat on the mat",
    "a dog and a cat make no peace",
    "stocks fell while bonds rose",
    "markets rose on good news for stocks",
    "the dog chased the cat around the mat",
    "bonds and markets had no news",
]
TOPICS = ["pets", "pets", "money", "money", "pets", "money"]


class Clipper(TransformerMixin, BaseEstimator):
    def __init__(self, share=0.1):
        self.share = share

    def fit(self, X, y=None):
        X = validate_data(self, X)
        self.low_, self.high_ = np.quantile(X, [self.share, 1 - self.share], axis=0)
        return self

    def transform(self, X):
        check_is_fitted(self)
        return np.clip(validate_data(self, X, reset=False), self.low_, self.high_)


class Nearest(ClassifierMixin, BaseEstimator):
    def __init__(self, power=2.0):
        self.power = power

    def fit(self, X, y):
        X, y = check_X_y(X, y)
        self.classes_ = np.unique(y)
        self.centers_ = np.stack([X[y == one].mean(0) for one in self.classes_])
        return self

    def predict(self, X):
        apart = np.abs(np.asarray(X)[:, None] - self.centers_) ** self.power
        return self.classes_[apart.sum(-1).argmin(1)]


class Median(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        self.value_ = np.median(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.value_)


def own_transformer_in_a_pipeline(args):
    X, y = load_iris(return_X_y=True)
    model = make_pipeline(Clipper(), StandardScaler(), Nearest())
    grid = {"clipper__share": [0.05, 0.2], "nearest__power": [1.0, 2.0]}
    search = GridSearchCV(model, grid, cv=StratifiedKFold(3)).fit(X, y)
    return search.best_params_, search.cv_results_["mean_test_score"], repr(model)


def own_regressor_is_scored(args):
    X, y = load_diabetes(return_X_y=True)
    copied = clone(Median())
    scores = cross_val_score(copied, X, y, cv=KFold(4, shuffle=True, random_state=0))
    return scores, copied.get_params(), copied.fit(X, y).value_


def grid_search(args):
    X, y = load_iris(return_X_y=True)
    pipe = Pipeline([("scale", StandardScaler()), ("svm", SVC())])
    search = GridSearchCV(
        pipe,
        {"svm__C": [0.1, 1, 10], "svm__kernel": ["linear", "rbf"]},
        cv=4,
        scoring={"acc": "accuracy", "f1": make_scorer(f1_score, average="macro")},
        refit="acc",
        n_jobs=1,
    ).fit(X, y)
    found = search.cv_results_
    return search.best_params_, found["mean_test_f1"], found["rank_test_acc"], search.predict(X)


def random_search_and_curves(args):
    X, y = make_classification(200, 6, random_state=0)
    search = RandomizedSearchCV(
        KNeighborsClassifier(), {"n_neighbors": range(1, 15)}, n_iter=5, random_state=0, cv=3
    ).fit(X, y)
    sizes, train, test = learning_curve(LogisticRegression(), X, y, cv=3)
    curve = validation_curve(Ridge(), X, y, param_name="alpha", param_range=[0.1, 1], cv=3)
    return search.best_params_, sizes, train, test, curve[1]


def cross_validation(args):
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=200)
    both = cross_validate(model, X, y, cv=3, scoring=["accuracy", "neg_log_loss"])
    chances = cross_val_predict(model, X, y, cv=3, method="predict_proba")
    groups = [split[1].tolist() for split in GroupKFold(3).split(X[:9], groups=[0, 1, 2] * 3)]
    times = [split[0].size for split in TimeSeriesSplit(4).split(X)]
    real, _, chance = permutation_test_score(
        model, X, y, cv=3, n_permutations=5, random_state=0
    )
    return both["test_neg_log_loss"], chances[::15], groups, times, real, chance


def columns_of_two_kinds(args):
    rng = np.random.default_rng(1)
    table = np.empty((60, 3), dtype=object)
    table[:, 0] = rng.normal(size=60)
    table[:, 1] = rng.choice(["red", "green", "blue"], 60)
    table[:, 2] = rng.integers(0, 4, 60)
    target = (table[:, 0].astype(float) > 0) ^ (table[:, 1] == "red")
    columns = ColumnTransformer(
        [("number", StandardScaler(), [0]), ("colour", OneHotEncoder(), [1])],
        remainder="passthrough",
    )
    model = Pipeline([("columns", columns), ("model", LogisticRegression())])
    model.fit(table, target)
    names = model.named_steps.columns.get_feature_names_out().tolist()
    short = make_column_transformer((MinMaxScaler(), [2])).fit_transform(table)
    return names, model["model"].coef_, model.predict(table[:9]), short[:4]


def words_and_bayes(args):
    words = CountVectorizer(ngram_range=(1, 2), min_df=1)
    counts = words.fit_transform(TEXTS)
    model = make_pipeline(TfidfVectorizer(stop_words="english"), MultinomialNB())
    model.fit(TEXTS, TOPICS)
    other = ComplementNB().fit(counts, TOPICS)
    new = ["cat and dog", "good news for bonds"]
    return (
        *(counts.toarray(), words.get_feature_names_out().tolist()),
        *(model.predict(new).tolist(), model.predict_proba(new)),
        other.predict(words.transform(new)).tolist(),
    )


def own_words(args):
    def tokens(text):
        return [word[:3] for word in text.split()]

    made = TfidfVectorizer(tokenizer=tokens, token_pattern=None, sublinear_tf=True)
    hashed = FeatureHasher(8, input_type="string").transform([t.split() for t in TEXTS])
    table = DictVectorizer(sparse=False)
    rows = table.fit_transform([{"a": 1, "b": "x"}, {"a": 3, "b": "y"}])
    return made.fit_transform(TEXTS), made.vocabulary_, hashed, rows


def selected_columns(args):
    X, y = make_classification(150, 10, n_informative=3, random_state=0)
    best = SelectKBest(f_classif, k=3).fit(X, y)
    told = SelectFromModel(LogisticRegression(C=0.2), importance_getter="coef_").fit(X, y)
    cut = RFE(LogisticRegression(), n_features_to_select=3).fit(X, y)
    step = SequentialFeatureSelector(Ridge(), n_features_to_select=2, cv=3).fit(X, y)
    shared = mutual_info_classif(X, y, random_state=0)
    kept = VarianceThreshold(0.9).fit(X)
    return (
        *(best.scores_, told.get_support(), cut.ranking_, step.get_support(), shared),
        kept.variances_,
    )


def filled_gaps(args):
    X, _ = load_iris(return_X_y=True)
    X = X[::4].copy()
    X[::5, 1] = np.nan
    kinds = [SimpleImputer(strategy="median"), KNNImputer(), IterativeImputer(random_state=0)]
    return [kind.fit_transform(X)[:6] for kind in kinds]


def codes_and_shapes(args):
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(80, 2))
    labels = rng.choice(["a", "b", "c"], 80)
    return (
        LabelEncoder().fit_transform(labels),
        OrdinalEncoder().fit_transform(labels[:, None])[:9],
        KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf")
        .fit(X)
        .bin_edges_[0],
        PowerTransformer().fit(X).lambdas_,
        QuantileTransformer(n_quantiles=20, output_distribution="normal", random_state=0)
        .fit_transform(X)[:5],
        TargetEncoder(random_state=0).fit_transform(labels[:, None], X[:, 0])[:5],
        MultiLabelBinarizer().fit_transform([["a", "b"], ["c"]]),
    )


def unions_and_functions(args):
    X, y = load_iris(return_X_y=True)
    union = FeatureUnion([("log", FunctionTransformer(np.log1p)), ("clip", Clipper())])
    inside = TransformedTargetRegressor(Ridge(), func=np.log1p, inverse_func=np.expm1)
    model = Pipeline([("union", union), ("model", inside)]).fit(X, y + 1.0)
    model.set_params(model__regressor__alpha=3.0)
    return model.fit(X, y + 1.0).predict(X[:9]), sorted(model.get_params())[:8]
