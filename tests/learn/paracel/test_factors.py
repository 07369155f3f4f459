"""SVD against LAPACK, alternating least squares on its equations and unseen ratings."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
from scipy.optimize import minimize

from stoilo.core.errors import UsageError
from stoilo.learn.core.data import Part
from stoilo.learn.paracel.factors import (
    alternating,
    biased_factors,
    conjugate_factors,
    guess_ratings,
    read_svd,
    tall_svd,
)
from stoilo.learn.paracel.program import train
from tests.learn.paracel.conftest import on_threads


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


def goal(found, links, y, penalty):
    users, items = found["users"], found["items"]
    rest = np.sum(users[links[:, 0]] * items[links[:, 1]], axis=1) - y
    return rest @ rest + penalty * (np.sum(users**2) + np.sum(items**2))


def small(seed):
    """A few ratings by factors of width 2, and where to begin."""
    rng = np.random.default_rng(seed)
    links = np.argwhere(rng.random((20, 15)) < 0.6)
    y = np.sum(
        rng.standard_normal((20, 2))[links[:, 0]]
        * rng.standard_normal((15, 2))[links[:, 1]],
        axis=1,
    )
    return links, y, (rng.standard_normal((20, 2)), rng.standard_normal((15, 2)))


def value_and_slope(flat, links, y):
    users, items = flat[:40].reshape(20, 2), flat[40:].reshape(15, 2)
    rest = np.sum(users[links[:, 0]] * items[links[:, 1]], axis=1) - y
    slope = [2.0 * users, 2.0 * items]
    np.add.at(slope[0], links[:, 0], 2.0 * rest[:, None] * items[links[:, 1]])
    np.add.at(slope[1], links[:, 1], 2.0 * rest[:, None] * users[links[:, 0]])
    value = goal({"users": users, "items": items}, links, y, 1.0)
    return value, np.concatenate([slope[0].ravel(), slope[1].ravel()])


def flat(found):
    return np.concatenate([found["users"].ravel(), found["items"].ravel()])


def descend(start, links, y, rounds, *, steepest=False):
    """Run the program without any place; `steepest` forgets the direction each time."""
    program = conjugate_factors(*start, 1.0, rounds)
    here = dict(program.start)
    for _ in range(program.rounds):
        here |= program.step(here, program.kernel(here, links, y)[1])
        if steepest and not here["turn"][0]:
            here |= {"du": 0 * here["du"], "di": 0 * here["di"], "hu": 0 * here["hu"]}
            here["hi"] = 0 * here["hi"]
    return here


@pytest.mark.parametrize("seed", range(5))
def test_conjugate_gradients_end_where_scipys_find_nothing_more(seed):
    links, y, start = small(seed)
    found = flat(descend(start, links, y, 200))
    value, slope = value_and_slope(found, links, y)
    further = minimize(value_and_slope, found, (links, y), jac=True, method="CG")
    assert np.abs(slope).max() < 1e-3
    assert value - further.fun < 1e-8 * value
    assert value < 0.5 * value_and_slope(np.concatenate(start).ravel(), links, y)[0]


@pytest.mark.parametrize("seed", range(5))
def test_steepest_directions_are_farther_from_the_end(seed):
    links, y, start = small(seed)
    least = value_and_slope(flat(descend(start, links, y, 200)), links, y)[0]
    gaps = [
        value_and_slope(flat(descend(start, links, y, 30, steepest=way)), links, y)[0]
        - least
        for way in (False, True)
    ]
    assert gaps[0] < 0.5 * gaps[1]


async def test_places_agree_on_conjugate_gradients(run):
    links, y, start = small(0)
    found = flat(await run(conjugate_factors(*start, 1.0, 5), links, y))
    assert np.abs(found - flat(descend(start, links, y, 5))).max() < 1e-9


def stars(seed):
    """Ratings 1 to 5 with tastes of users and items; a tenth held out."""
    rng = np.random.default_rng(seed)
    links = np.argwhere(rng.random((80, 50)) < 0.4)
    u, i = 0.6 * rng.standard_normal(80), 0.6 * rng.standard_normal(50)
    y = 3.3 + u[links[:, 0]] + i[links[:, 1]] + 0.3 * rng.standard_normal(len(links))
    order = rng.permutation(len(y))
    links, y = links[order], np.clip(np.round(y), 1.0, 5.0)[order]
    start = 0.1 * rng.standard_normal((81, 4)), 0.1 * rng.standard_normal((50, 4))
    held = len(y) // 10
    return (links[held:], y[held:]), (links[:held], y[:held]), start


def serial(links, y, users, items, rounds, step=5e-3, decay=1e-2):
    """Plain SGD, rating by rating."""
    users, items = users.copy(), items.copy()
    bu, bi, mean = np.zeros(len(users)), np.zeros(len(items)), y.sum() / len(y)
    for _ in range(rounds):
        for (u, i), rating in zip(links, y, strict=True):
            p, q = users[u].copy(), items[i].copy()
            e = rating - min(max(mean + bu[u] + bi[i] + np.sum(p * q), 1.0), 5.0)
            users[u] = p + step * (2.0 * e * q - decay * p)
            items[i] = q + step * (2.0 * e * p - decay * q)
            bu[u] += step * (2.0 * e - decay * bu[u])
            bi[i] += step * (2.0 * e - decay * bi[i])
    return {"users": users, "items": items, "user_bias": bu, "item_bias": bi}


@pytest.mark.parametrize("seed", range(5))
async def test_one_part_is_serial_descent_bit_for_bit(seed):
    (links, y), _, start = stars(seed)
    found = await train(None, [Part(links, y)], biased_factors(*start, rounds=3))
    want = serial(links, y, *start, 3)
    assert all(np.array_equal(found[name], want[name]) for name in want)


def error_of_stars(found, links, y):
    return np.sqrt(np.mean((guess_ratings(found, links) - y) ** 2))


@pytest.mark.parametrize("seed", range(5))
async def test_parts_learn_ratings_that_they_have_not_seen(seed):
    seen, held, start = stars(seed)
    found = await on_threads(biased_factors(*start, rounds=20), *seen)
    mean = np.sqrt(np.mean((seen[1].mean() - held[1]) ** 2))
    assert error_of_stars(found, *held) < 0.7 * mean


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
async def test_differences_that_are_added_without_weights_go_too_far(seed):
    (links, y), _, start = stars(seed)
    parts = [Part(links[k::20], y[k::20]) for k in range(20)]
    program = biased_factors(*start, rounds=15, step=0.05)

    def added(here, sums):
        found = program.step(here, sums)
        if here["round"][0]:
            for name in ("users", "items", "user_bias", "item_bias"):
                held = here["user_holders" if name[0] == "u" else "item_holders"]
                held = held.reshape(-1, *[1] * (here[name].ndim - 1))
                found[name] = here[name] + held * (found[name] - here[name])
        return found

    fair = await train(None, parts, program)
    with np.errstate(all="ignore"):
        wild = await train(None, parts, replace(program, step=added))
    assert error_of_stars(fair, links, y) < 0.8 < error_of_stars(wild, links, y)


async def test_who_is_unknown_is_guessed_at_the_mean(run):
    (links, y), _, start = stars(0)
    found = await run(biased_factors(*start, rounds=2), links, y)
    guesses = guess_ratings(found, np.array([[80, 0], [-1, 0], [0, -1], [0, 0]]))
    assert guesses[:3] == pytest.approx(y.mean())
    assert guesses[3] != pytest.approx(y.mean())
