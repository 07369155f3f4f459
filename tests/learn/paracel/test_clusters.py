"""k-means against scikit-learn, counts against Python's own; means of means are wrong."""

from collections import Counter

import numpy as np
import pytest
from scipy.sparse import coo_array
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import cosine_similarity

from stoilo.learn.core.data import Part
from stoilo.learn.paracel.clusters import best_lines, kmeans, similarity, word_count
from stoilo.learn.paracel.program import train

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))]


def blobs(seed):
    rng = np.random.default_rng(seed)
    middles = 3.0 * rng.standard_normal((4, 3))
    x = middles[rng.integers(4, size=300)] + rng.standard_normal((300, 3))
    return x, x[:4], np.zeros(300)


@pytest.mark.parametrize("seed", SEEDS)
async def test_centres_are_scikit_learns(seed, run):
    x, first, none = blobs(seed)
    found = await run(kmeans(first, 60), x, none)
    reference = KMeans(4, init=first, n_init=1, tol=0.0, algorithm="lloyd").fit(x)
    assert np.abs(found["centres"] - reference.cluster_centers_).max() < 1e-10
    assert found["counts"].tolist() == np.bincount(reference.labels_).tolist()


def mean_of_means(x, first, parts):
    """One round as it must not be: each part's centres, averaged without their counts."""
    found = []
    for rows in parts:
        labels = ((x[rows][:, None] - first) ** 2).sum(2).argmin(1)
        found.append([x[rows][labels == k].mean(0) for k in range(len(first))])
    return np.mean(found, axis=0)


async def test_counts_are_summed_before_centres_are_made(run):
    x, _, none = blobs(0)
    first = x[[0, 1]]
    labels = ((x[:, None] - first) ** 2).sum(2).argmin(1)
    right = np.array([x[labels == k].mean(0) for k in range(2)])
    found = (await run(kmeans(first, 1), x, none))["centres"]
    wrong = mean_of_means(x, first, [slice(15), slice(15, 300)])
    assert np.abs(found - right).max() < 1e-12
    assert np.abs(wrong - right).max() > 1e-2


async def test_centre_that_nobody_is_next_to_stays(run):
    x, first, none = blobs(0)
    far = np.vstack([first, np.full(3, 1e6)])
    found = await run(kmeans(far, 3), x, none)
    assert found["centres"][4].tolist() == [1e6] * 3
    assert found["counts"][4] == 0


async def test_words_are_counted_as_python_does(run):
    lines = np.random.default_rng(0).integers(-1, 12, (80, 7))
    found = await run(word_count(12), lines, np.zeros(80))
    want = Counter(lines[lines >= 0].tolist())
    assert dict(enumerate(found["counts"])) == want


@pytest.mark.parametrize("seed", SEEDS)
async def test_parts_that_are_rounds_apart_find_the_same_centres(seed, run_apart):
    x, first, none = blobs(seed)
    found = await run_apart(kmeans(first, 80), x, none, 2)
    reference = KMeans(4, init=first, n_init=1, tol=0.0, algorithm="lloyd").fit(x)
    scores = [
        np.sum(np.min(((x[:, None] - c) ** 2).sum(2), axis=1))
        for c in (found["centres"], reference.cluster_centers_, first)
    ]
    assert scores[0] < 1.05 * scores[1] < scores[2]


async def test_columns_are_alike_as_scikit_learn_says(run):
    x = np.random.default_rng(0).standard_normal((90, 5))
    x[:, 4] = 0.0
    found = await run(similarity(5), x, np.zeros(90))
    assert np.abs(found["similar"] - cosine_similarity(x.T)).max() < 1e-13


def entries(seed):
    """Entries of a sparse matrix in the order of its rows."""
    rng = np.random.default_rng(seed)
    links = np.argwhere(rng.random((60, 7)) < 0.3)
    return links, rng.standard_normal(len(links))


async def test_sparse_columns_are_alike_as_scikit_learn_says_if_rows_are_whole():
    links, y = entries(0)
    want = cosine_similarity(coo_array((y, links.T), (60, 7)).T.tocsr())
    program, rows = similarity(7, sparse=True), links[:, 0] % 3

    async def found(place):
        parts = [Part(links[place == k], y[place == k]) for k in range(3)]
        return (await train(None, parts, program))["similar"]

    assert np.abs(await found(rows) - want).max() < 1e-13
    assert np.abs(await found(np.arange(len(y)) % 3) - want).max() > 0.1


async def test_best_lines_are_those_of_a_sort_the_first_of_equal_ones(run):
    x = np.random.default_rng(0).integers(-3, 3, (80, 3)).astype(float)
    query = np.array([1.0, -2.0, 0.5])
    found = (await run(best_lines(query, 10), x, np.arange(80.0)))["best"]
    order = np.argsort(-(x @ query), kind="stable")[:10]
    assert found[:, 1].tolist() == (order + 1.0).tolist()
    assert found[:, 0].tolist() == (x @ query)[order].tolist()


async def test_best_lines_count_what_is_negative_and_none_twice(run):
    x = -np.arange(1.0, 81.0)[:, None]
    found = (await run(best_lines(np.ones(1), 3), x, np.arange(80.0)))["best"]
    assert found.tolist() == [[-1.0, 1.0], [-2.0, 2.0], [-3.0, 3.0]]
