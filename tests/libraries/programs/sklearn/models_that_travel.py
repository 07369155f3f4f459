"""Fitted models as results: the researcher gets the model itself."""

from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris, load_wine
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC


def a_forest(args):
    X, y = load_wine(return_X_y=True)
    return RandomForestClassifier(12, random_state=0).fit(X, y)


def stages(args):
    X, y = load_iris(return_X_y=True)
    return GradientBoostingClassifier(n_estimators=6, random_state=0).fit(X, y)


def a_pipeline(args):
    X, y = load_wine(return_X_y=True)
    columns = make_column_transformer((StandardScaler(), [0, 1, 2]), remainder=MinMaxScaler())
    return make_pipeline(columns, SVC(C=3)).fit(X, y)


def several(args):
    X, y = load_iris(return_X_y=True)
    words = TfidfVectorizer().fit(["one cat", "two dogs", "a cat and a dog"])
    return {"near": KNeighborsClassifier().fit(X, y), "words": words, "new": LogisticRegression()}


def _matches(args):
    return args["model"].predict(args["data"])


def asked_again(args):
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=200).fit(X, y)
    return _matches({"model": model, "data": X})
