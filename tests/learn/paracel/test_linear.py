"""Linear models against scikit-learn, in every place; the published rule beside ours."""

import numpy as np
import pytest
from sklearn.linear_model import Lasso, LogisticRegression, Ridge

from stoilo.core.errors import UsageError
from stoilo.learn.paracel.linear import (
    conjugate_ridge,
    consensus_lasso,
    lasso,
    ridge,
    sparse_logistic,
)

SEEDS = range(5)


def problem(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    x = scale * rng.standard_normal((201, 6))  # parts of unlike sizes
    truth = np.array([2.0, -1.0, 0.0, 0.0, 0.5, 0.0]) / scale
    return x, x @ truth + 0.1 * rng.standard_normal(201)


def labels(seed):
    x, y = problem(seed)
    return x, (y + np.random.default_rng(seed + 100).standard_normal(201) > 0) * 1.0


async def test_ridge_is_scikit_learns(run):
    x, y = problem(0)
    found = await run(ridge(6, 3.0), x, y)
    reference = Ridge(3.0, fit_intercept=False).fit(x, y).coef_
    assert np.abs(found["theta"] - reference).max() < 1e-11
    assert np.abs(found["theta"] - np.linalg.lstsq(x, y)[0]).max() > 1e-4


async def test_conjugate_gradients_reach_ridge_in_as_many_steps_as_columns(run):
    x, y = problem(0)
    reference = Ridge(3.0, fit_intercept=False).fit(x, y).coef_
    errors = {}
    for steps in (2, 6):
        found = await run(conjugate_ridge(6, 3.0, steps), x, y)
        errors[steps] = np.abs(found["theta"] - reference).max()
    assert errors[6] < 1e-11
    assert errors[2] > 1e-5


async def test_conjugate_gradients_stay_when_nothing_is_left_to_gain(run):
    x, y = problem(0)
    found = await run(conjugate_ridge(6, 3.0, 30), x, np.zeros_like(y))
    assert not found["theta"].any()


async def test_lasso_is_scikit_learns(run):
    x, y = problem(0)
    found = (await run(lasso(6, 0.1), x, y))["theta"]
    reference = Lasso(0.1, fit_intercept=False, tol=1e-15, max_iter=10**6).fit(x, y)
    assert np.abs(found - reference.coef_).max() < 2e-11
    assert (found == 0.0).sum() == 3


@pytest.mark.parametrize("scale", [1.0, 30.0])
async def test_parts_agree_on_the_lasso_of_scikit_learn(scale, run):
    x, y = problem(0, scale)
    found = (await run(consensus_lasso(6, 0.1, 150), x, y))["theta"]
    reference = Lasso(0.1, fit_intercept=False, tol=1e-15, max_iter=10**6).fit(x, y)
    assert np.abs(found - reference.coef_).max() < 2e-11
    assert (found == 0.0).tolist() == (reference.coef_ == 0.0).tolist()


async def test_few_rounds_of_consensus_are_not_enough(run):
    x, y = problem(0)
    found = (await run(consensus_lasso(6, 0.1, 3), x, y))["theta"]
    reference = Lasso(0.1, fit_intercept=False, tol=1e-15, max_iter=10**6).fit(x, y)
    assert np.abs(found - reference.coef_).max() > 1e-6


async def test_parts_that_are_rounds_apart_agree_on_the_same_lasso(run_apart):
    x, y = problem(0)
    found = await run_apart(consensus_lasso(6, 0.1, 300), x, y, 2)
    reference = Lasso(0.1, fit_intercept=False, tol=1e-15, max_iter=10**6).fit(x, y)
    assert np.abs(found["theta"] - reference.coef_).max() < 1e-9


def published(x, y, penalty, steps=2000):
    """The published coordinate rule: a step of the slope, whatever the column's size."""
    rng, n = np.random.default_rng(0), len(x)
    w, z = np.zeros(2 * x.shape[1]), np.zeros(n)
    both = np.hstack([x, -x])
    for _ in range(steps):
        j = rng.integers(len(w))
        move = max(-w[j], -(penalty * n + (z - y) @ both[:, j]) / n)
        w[j] += move
        z = z + move * both[:, j]
    half = x.shape[1]
    return w[:half] - w[half:]


async def test_columns_that_are_not_scaled_diverge_by_the_published_rule_alone(run):
    x, y = problem(0, scale=3.0)
    reference = Lasso(0.1, fit_intercept=False, tol=1e-15, max_iter=10**6).fit(x, y)
    found = (await run(lasso(6, 0.1), x, y))["theta"]
    assert np.abs(found - reference.coef_).max() < 2e-11
    with np.errstate(all="ignore"):
        diverged = published(x, y, 0.1)
    assert not np.abs(diverged - reference.coef_).max() < 1e6
    small, y = problem(0, scale=0.5)  # where it may be used it is right
    reference = Lasso(0.1, fit_intercept=False, tol=1e-15).fit(small, y).coef_
    assert np.abs(published(small, y, 0.1) - reference).max() < 1e-6


@pytest.mark.parametrize("seed", SEEDS)
async def test_sparse_logistic_is_no_worse_than_scikit_learns(seed, run):
    x, y = labels(seed)
    theta = (await run(sparse_logistic(6, 5.0, 60), x, y))["theta"]
    reference = LogisticRegression(
        C=0.2,
        l1_ratio=1.0,
        fit_intercept=False,
        solver="saga",
        tol=1e-12,
        max_iter=10**5,
    ).fit(x, y)

    def goal(at):
        return np.sum(np.logaddexp(0, x @ at) - y * (x @ at)) + 5.0 * np.abs(at).sum()

    assert goal(theta) <= goal(reference.coef_[0]) + 1e-7
    assert goal(np.zeros(6)) > goal(theta) + 10.0


def test_penalty_below_nothing_is_refused():
    with pytest.raises(UsageError, match="STO-T040"):
        ridge(3, -1.0)
