"""Regressors: linear, kernels, processes, trees."""

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1, make_regression
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.isotonic import IsotonicRegression
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    BayesianRidge,
    ElasticNetCV,
    HuberRegressor,
    Lars,
    Lasso,
    LassoCV,
    LinearRegression,
    MultiTaskLasso,
    PoissonRegressor,
    QuantileRegressor,
    RANSACRegressor,
    Ridge,
    lasso_path,
)
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.multioutput import MultiOutputRegressor, RegressorChain
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer
from sklearn.svm import SVR


def linear_models_of_diabetes(args):
    X, y = load_diabetes(return_X_y=True)
    models = [LinearRegression(), Ridge(0.5), Lasso(0.1), BayesianRidge(), Lars()]
    return [(type(m).__name__, m.fit(X, y).coef_, m.score(X, y)) for m in models]


def paths_of_penalties(args):
    X, y = load_diabetes(return_X_y=True)
    alphas, coefs, _ = lasso_path(X, y, n_alphas=12)
    chosen = LassoCV(cv=4, alphas=20).fit(X, y)
    net = ElasticNetCV(cv=3, l1_ratio=[0.3, 0.9], alphas=15).fit(X, y)
    tasks = MultiTaskLasso(0.2).fit(X, np.stack([y, y * 2], 1))
    return alphas, coefs, chosen.alpha_, net.l1_ratio_, tasks.coef_


def robust_lines(args):
    X, y = make_regression(120, 3, noise=4, random_state=0)
    y[::10] += 300
    huber, ransac = HuberRegressor().fit(X, y), RANSACRegressor(random_state=0).fit(X, y)
    middle = QuantileRegressor(quantile=0.5, alpha=0.01).fit(X, y)
    return huber.coef_, ransac.estimator_.coef_, ransac.inlier_mask_, middle.coef_


def gaussian_process(args):
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 6, 25))[:, None]
    y = np.sin(X).ravel() + rng.normal(0, 0.1, 25)
    kernel = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, n_restarts_optimizer=2, random_state=0).fit(X, y)
    mean, deviation = model.predict(np.linspace(0, 6, 9)[:, None], return_std=True)
    return str(model.kernel_), mean, deviation, model.sample_y(X[:3], 2, random_state=1)


def gaussian_process_of_classes(args):
    X, y = make_friedman1(40, 5, random_state=1)
    model = GaussianProcessClassifier(Matern(nu=1.5)).fit(X, y > np.median(y))
    return model.predict_proba(X[:8]), model.log_marginal_likelihood_value_


def trees_of_friedman(args):
    X, y = make_friedman1(300, 6, noise=0.5, random_state=0)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    models = [
        RandomForestRegressor(25, random_state=0),
        GradientBoostingRegressor(n_estimators=40, loss="huber", random_state=0),
        HistGradientBoostingRegressor(max_iter=30, random_state=0),
    ]
    return [r2_score(y_test, model.fit(X, y).predict(X_test)) for model in models]


def what_matters(args):
    X, y = make_friedman1(200, 5, random_state=0)
    model = GradientBoostingRegressor(n_estimators=30, random_state=0).fit(X, y)
    permuted = permutation_importance(model, X, y, n_repeats=3, random_state=0)
    partial = partial_dependence(model, X, [0], grid_resolution=6)
    return permuted.importances_mean, partial["average"], partial.grid_values[0]


def kernels_and_splines(args):
    x = np.linspace(0, 5, 40)[:, None]
    y = np.cos(2 * x).ravel()
    ridge = KernelRidge(alpha=0.1, kernel="rbf", gamma=2).fit(x, y)
    vectors = SVR(C=5, epsilon=0.05).fit(x, y)
    spline = LinearRegression().fit(SplineTransformer(n_knots=6).fit_transform(x), y)
    powers = PolynomialFeatures(4).fit_transform(x)
    return ridge.dual_coef_, vectors.predict(x), spline.coef_, powers[3]


def steps_and_counts(args):
    rng = np.random.default_rng(4)
    x = rng.uniform(0, 3, 80)
    counts = rng.poisson(np.exp(0.4 * x))
    steps = IsotonicRegression(out_of_bounds="clip").fit(x, counts)
    model = PoissonRegressor().fit(x[:, None], counts)
    return steps.predict([0.2, 1.5, 2.9]), steps.X_thresholds_, model.coef_


def several_targets(args):
    X, y = make_regression(100, 4, n_targets=3, noise=1, random_state=2)
    both = MultiOutputRegressor(Ridge()).fit(X, y)
    chain = RegressorChain(Ridge(), order=[2, 0, 1]).fit(X, y)
    near = KNeighborsRegressor(3, weights="distance").fit(X, y)
    errors = [mean_absolute_error(y, m.predict(X)) for m in (both, chain, near)]
    return errors, root_mean_squared_error(y, near.predict(X))
