"""Classifiers on made and on textbook data."""

import numpy as np
from sklearn.calibration import CalibratedClassifierCV, calibration_curve
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
    make_moons,
)
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.metrics import (
    accuracy_score,
    classification_report,
    confusion_matrix,
    log_loss,
    roc_auc_score,
    roc_curve,
)
from sklearn.model_selection import train_test_split
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, NuSVC
from sklearn.tree import DecisionTreeClassifier, export_text


def logistic_regression_on_wine(args):
    X, y = load_wine(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.5)).fit(X, y)
    chances = model.predict_proba(X_test)
    return accuracy_score(y_test, model.predict(X_test)), log_loss(y_test, chances), chances


def support_vectors_of_digits(args):
    digits = load_digits(n_class=6)
    X, X_test, y, y_test = train_test_split(digits.data, digits.target, random_state=1)
    model = SVC(gamma=0.001, C=10).fit(X, y)
    return (
        confusion_matrix(y_test, model.predict(X_test)),
        model.n_support_,
        model.decision_function(X_test[:5]),
        digits.target_names.tolist(),
    )


def kernel_of_ones_own(args):
    X, y = make_moons(120, noise=0.2, random_state=3)

    def kernel(a, b):
        return (a @ b.T + 1) ** 3

    own = SVC(kernel=kernel).fit(X[:80], y[:80])
    nu = NuSVC(nu=0.3, kernel="poly").fit(X[:80], y[:80])
    return own.predict(X[80:]), own.decision_function(X[80:]), nu.predict(X[80:])


def tree_and_its_rules(args):
    iris = load_iris()
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(iris.data, iris.target)
    inner = tree.tree_
    return (
        export_text(tree, feature_names=list(iris.feature_names)),
        inner.node_count,
        inner.children_left,
        inner.threshold,
        tree.feature_importances_,
        tree.apply(iris.data[::10]),
    )


def random_forest_on_cancer(args):
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=5)
    model = RandomForestClassifier(40, oob_score=True, random_state=0, n_jobs=1).fit(X, y)
    chances = model.predict_proba(X_test)[:, 1]
    curve = roc_curve(y_test, chances)
    return model.oob_score_, roc_auc_score(y_test, chances), *curve[:2]


def boosting_three_ways(args):
    X, y = make_classification(400, 12, n_informative=6, random_state=2)
    kinds = [
        GradientBoostingClassifier(n_estimators=30, subsample=0.7, random_state=0),
        HistGradientBoostingClassifier(max_iter=20, random_state=0),
        AdaBoostClassifier(n_estimators=20, random_state=0),
    ]
    return [model.fit(X[:300], y[:300]).predict_proba(X[300:]) for model in kinds]


def votes_and_stacks(args):
    X, y = load_iris(return_X_y=True)
    members = [
        ("near", KNeighborsClassifier(3)),
        ("bayes", GaussianNB()),
        ("tree", DecisionTreeClassifier(random_state=0)),
    ]
    vote = VotingClassifier(members, voting="soft", weights=[1, 2, 1]).fit(X, y)
    stack = StackingClassifier(members, LogisticRegression(), cv=3).fit(X, y)
    named = vote.named_estimators_.bayes.theta_
    return vote.predict_proba(X[::7]), stack.predict_proba(X[::7]), named


def neighbours_of_three_kinds(args):
    X, y = load_iris(return_X_y=True)
    found = []
    for algorithm in ("brute", "kd_tree", "ball_tree"):
        model = KNeighborsClassifier(5, weights="distance", algorithm=algorithm).fit(X, y)
        found.append((*model.kneighbors(X[:4]), model.predict_proba(X[::9])))
    return found, NearestCentroid().fit(X, y).centroids_


def distance_of_ones_own(args):
    def distance(a, b):
        return np.abs(a - b).max()

    X, y = load_iris(return_X_y=True)
    model = KNeighborsClassifier(4, metric=distance, algorithm="ball_tree").fit(X[::3], y[::3])
    return model.predict(X[1::3]), model.kneighbors(X[:2])[0]


def discriminants(args):
    X, y = load_wine(return_X_y=True)
    linear = LinearDiscriminantAnalysis(solver="svd", store_covariance=True).fit(X, y)
    quadratic = QuadraticDiscriminantAnalysis(reg_param=0.1).fit(X, y)
    return linear.transform(X)[:5], linear.covariance_, quadratic.predict_proba(X)[::20]


def perceptron_with_layers(args):
    X, y = make_moons(200, noise=0.15, random_state=0)
    net = MLPClassifier((16, 8), max_iter=60, random_state=1).fit(X, y)
    return net.loss_curve_, net.predict_proba(X[:10]), net.coefs_[0]


def calibrated_chances(args):
    X, y = make_classification(600, 8, random_state=4)
    model = CalibratedClassifierCV(LinearSVC(random_state=0), cv=3).fit(X[:400], y[:400])
    bent = CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=3).fit(X[:400], y[:400])
    chances = model.predict_proba(X[400:])[:, 1]
    return calibration_curve(y[400:], chances, n_bins=5), bent.predict_proba(X[400:410])


def many_from_two(args):
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    rest = OneVsRestClassifier(LinearSVC(random_state=0)).fit(X, y)
    pairs = OneVsOneClassifier(RidgeClassifier()).fit(X, y)
    report = classification_report(y, pairs.predict(X), digits=3)
    return rest.decision_function(X[:5]), pairs.predict(X), report


def streams_of_batches(args):
    X, y = make_classification(500, 6, random_state=9)
    sgd, bayes = SGDClassifier(loss="log_loss", random_state=0), BernoulliNB()
    for start in range(0, 500, 100):
        part = slice(start, start + 100)
        sgd.partial_fit(X[part], y[part], classes=[0, 1])
        bayes.partial_fit(X[part] > 0, y[part], classes=[0, 1])
    return sgd.coef_, sgd.predict_proba(X[:6]), bayes.feature_log_prob_


def bags_and_outliers(args):
    X, y = load_iris(return_X_y=True)
    bag = BaggingClassifier(DecisionTreeClassifier(), 8, random_state=0).fit(X, y)
    extra = ExtraTreesClassifier(15, random_state=0).fit(X, y)
    alone = IsolationForest(n_estimators=20, random_state=0).fit(X)
    return bag.predict_proba(X[::11]), extra.predict_proba(X[::11]), alone.score_samples(X)
