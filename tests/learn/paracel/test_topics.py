"""Topics: counts are all words, bars come out, as many parts nearly as well as one."""

import numpy as np
import pytest
from sklearn.decomposition import LatentDirichletAllocation

from stoilo.core.errors import UsageError
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.core.data import Part
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.paracel.topics import find_topics, perplexity

LENGTH = 60


def bars(seed, documents):
    """Documents over 25 words in a square; topics are its rows and columns."""
    rng = np.random.default_rng(seed)
    square = np.arange(25).reshape(5, 5)
    topics = np.vstack([square, square.T])
    lines = []
    for _ in range(documents):
        shares = rng.dirichlet(np.full(10, 0.1))
        chosen = topics[rng.choice(10, LENGTH, p=shares), rng.integers(5, size=LENGTH)]
        lines.append(np.where(np.arange(LENGTH) < rng.integers(40, LENGTH), chosen, -1))
    return np.array(lines)


async def sweep(lines, parts, sweeps, seed=0, staleness=0):
    program = find_topics(LENGTH, 25, 10, sweeps=sweeps, seed=seed)
    pieces = [Part(x, np.zeros(len(x))) for x in np.array_split(lines, parts)]
    model, backend = program.model(), LocalBackend()
    method = program.method(model.first(), [len(piece) for piece in pieces], staleness)
    settings = RunSettings(clip=None, in_flight=parts)
    async with backend, Run(method, model, pieces, backend, settings) as run:
        return (await run.finish()).parameters


async def test_counts_are_the_words_and_never_negative(run):
    lines = bars(0, 40)
    program = find_topics(LENGTH, 25, 10, sweeps=3)
    counts = (await run(program, lines, np.zeros(40)))["counts"]
    words = np.bincount(lines[lines >= 0], minlength=25)
    assert counts.min() >= 0.0
    assert counts.sum(axis=1).tolist() == words.tolist()


async def test_same_seed_gives_the_same_counts_another_gives_others():
    lines = bars(0, 20)
    one, again = await sweep(lines, 3, 2), await sweep(lines, 3, 2)
    other = await sweep(lines, 3, 2, seed=1)
    assert np.array_equal(one["counts"], again["counts"])
    assert not np.array_equal(one["counts"], other["counts"])


async def test_sweeps_make_topics_of_words_that_the_first_deal_does_not():
    lines = bars(0, 60)
    dealt, found = await sweep(lines, 4, 0), await sweep(lines, 4, 15)
    assert perplexity(dealt, lines) > 20.0
    assert perplexity(found, lines) < 0.75 * perplexity(dealt, lines)


@pytest.mark.slow
async def test_twenty_parts_find_bars_nearly_as_well_as_one_and_as_scikit_learn():
    reached = []
    for seed in range(5):
        lines, unseen = bars(seed, 150), bars(seed + 100, 100)
        table = np.array([np.bincount(one[one >= 0], minlength=25) for one in lines])
        priors = {"doc_topic_prior": 0.1, "topic_word_prior": 0.1}
        model = LatentDirichletAllocation(10, **priors, max_iter=60, random_state=seed)
        counts = model.fit(table).components_.T - 0.1
        theirs = {"counts": counts, "priors": np.array([0.1, 0.1, 0])}
        ours = [await sweep(lines, parts, 25) for parts in (1, 20)]
        dealt = await sweep(lines, 20, 0)
        reached.append([perplexity(one, unseen) for one in (*ours, theirs, dealt)])
    print(np.array(reached))
    one, twenty, sklearn, first = np.mean(reached, axis=0)
    assert max(one, twenty) < 1.1 * min(one, sklearn)
    assert twenty < 0.75 * first


async def test_parts_that_are_rounds_apart_keep_the_counts(run_apart):
    lines = bars(0, 40)
    program = find_topics(LENGTH, 25, 10, sweeps=4)
    counts = (await run_apart(program, lines, np.zeros(40), 2))["counts"]
    words = np.bincount(lines[lines >= 0], minlength=25)
    assert counts.sum(axis=1).tolist() == words.tolist()
    assert counts.min() >= 0.0


def lie(what):
    """What a part got and gave, its labels or counts changed by a liar."""
    given = {"labels": np.array([[1.0, 2.0, 0.0]])}
    labels, counts = np.array([[2.0, 2.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 1.0]])
    if what == "label":
        labels[0, 0] = 3.0
    if what == "half":
        labels[0, 0] = 1.5
    if what == "word":
        labels[0, 2] = 1.0
    if what == "counts":
        counts += np.array([[2.0, -1.0], [-2.0, 1.0]])
    if what == "more":
        counts[0, 0] += 1.0
    return given, {"labels": labels, "counts": counts}


@pytest.mark.parametrize("what", ["label", "half", "word", "counts", "more", ""])
def test_labels_and_counts_that_cannot_be_are_refused(what):
    assert find_topics(3, 2, 2).check(*lie(what)) is (what == "")


def test_no_prior_is_refused():
    with pytest.raises(UsageError, match="STO-T040"):
        find_topics(3, 2, 2, alpha=0.0)
