"""SVD against LAPACK, alternating least squares on its equations and unseen ratings."""

import numpy as np
import pytest
import scipy.linalg

from stoilo.core.errors import UsageError
from stoilo.learn.paracel.factors import alternating, read_svd, tall_svd


def steep(seed):
    """A tall matrix whose singular values fall from 1 to 1e-9."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((120, 5)))[0]
    right = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    return left * np.logspace(0, -9, 5) @ right


@pytest.mark.parametrize("seed", range(5))
async def test_small_singular_values_keep_their_digits(seed, run):
    x = steep(seed)
    values, vectors = read_svd(await run(tall_svd(5), x, np.zeros(120)))
    want, right = scipy.linalg.svd(x, full_matrices=False)[1:]
    assert np.abs(values - want).max() < 1e-14
    assert values[-1] == pytest.approx(1e-9, rel=1e-4)
    assert np.abs(np.abs(np.sum(vectors * right, axis=1)) - 1.0).max() < 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_published_way_by_the_product_loses_them(seed):
    squares = np.linalg.eigvalsh(steep(seed).T @ steep(seed))
    smallest = np.sqrt(abs(squares).min())
    assert abs(smallest - 1e-9) > 1e-10


async def test_left_vectors_follow_line_by_line(run):
    x = np.random.default_rng(0).standard_normal((100, 4))
    values, vectors = read_svd(await run(tall_svd(4), x, np.zeros(100)))
    left = x @ vectors.T / values
    assert np.abs(left.T @ left - np.eye(4)).max() < 1e-13
    assert np.abs(left * values @ vectors - x).max() < 1e-13


def ratings(seed):
    """Four tenths of a 200 by 120 matrix of rank 5, noise of 0.1; a tenth of those held out."""
    rng = np.random.default_rng(seed)
    users, items = rng.standard_normal((200, 5)), rng.standard_normal((120, 5))
    links = np.argwhere(rng.random((200, 120)) < 0.4)
    y = np.sum(users[links[:, 0]] * items[links[:, 1]], axis=1)
    y += 0.1 * rng.standard_normal(len(y))
    order = rng.permutation(len(y))
    held, seen = order[: len(y) // 10], order[len(y) // 10 :]
    start = rng.standard_normal((201, 5)), rng.standard_normal((120, 5))
    return (links[seen], y[seen]), (links[held], y[held]), start


def error_of(found, links, y):
    users, items = found["users"][links[:, 0]], found["items"][links[:, 1]]
    return np.sqrt(np.mean((np.sum(users * items, axis=1) - y) ** 2))


@pytest.mark.parametrize("seed", range(5))
async def test_both_sides_in_turn_learn_what_one_side_once_does_not(seed, run):
    seen, held, start = ratings(seed)
    found = await run(alternating(*start, 0.1, 20), *seen)
    once = {**found, "users": found["users"] * 0, "items": start[1]}
    for user in range(200):
        rows = seen[0][:, 0] == user
        near = start[1][seen[0][rows, 1]]
        square = near.T @ near + 0.1 * np.eye(5)
        once["users"][user] = np.linalg.inv(square) @ near.T @ seen[1][rows]
    assert error_of(found, *held) < 0.2
    assert error_of(once, *held) > 0.8


async def test_last_side_solves_its_normal_equations_and_who_rated_nothing_has_zeros(
    run,
):
    seen, _, start = ratings(0)
    found = await run(alternating(*start, 0.1, 2), *seen)
    users, items = found["users"], found["items"]
    rest = np.sum(users[seen[0][:, 0]] * items[seen[0][:, 1]], axis=1) - seen[1]
    slope = 0.1 * items
    np.add.at(slope, seen[0][:, 1], rest[:, None] * users[seen[0][:, 0]])
    assert np.abs(slope).max() < 1e-11
    assert users[200].tolist() == [0.0] * 5


def test_no_penalty_is_refused():
    with pytest.raises(UsageError, match="STO-T040"):
        alternating(np.ones((2, 1)), np.ones((2, 1)), 0.0)
