"""k-means against scikit-learn, counts against Python's own; means of means are wrong."""

from collections import Counter

import numpy as np
import pytest
from sklearn.cluster import KMeans

from stoilo.learn.paracel.clusters import kmeans, word_count


def blobs(seed):
    rng = np.random.default_rng(seed)
    middles = 3.0 * rng.standard_normal((4, 3))
    x = middles[rng.integers(4, size=300)] + rng.standard_normal((300, 3))
    return x, x[:4], np.zeros(300)


@pytest.mark.parametrize("seed", range(5))
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
