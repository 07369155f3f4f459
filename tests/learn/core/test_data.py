"""Splits: every sample in one part; and how unlike the parts are."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.learn.core.data import (
    collect,
    read_arrays,
    scale_pixels,
    split,
    split_by_classes,
    split_by_dirichlet,
    split_by_label,
)

LABELS = np.arange(600) % 10
KINDS = {
    "random": split,
    "label": split_by_label,
    "classes": split_by_classes,
    "dirichlet": split_by_dirichlet,
}


def spread_of(parts):
    """Return how far the parts' shares of classes are from those of all, 0 to 1."""
    shares = [np.bincount(part.y, minlength=10) / len(part) for part in parts]
    return float(np.mean([np.abs(share - 0.1).sum() / 2 for share in shares]))


@given(
    kind=st.sampled_from([*KINDS]), parts=st.integers(1, 12), seed=st.integers(0, 99)
)
def test_every_sample_is_in_one_part_with_its_label(kind, parts, seed):
    x = np.arange(600)
    found = KINDS[kind](x, LABELS, parts, seed=seed)
    together = np.concatenate([part.x for part in found])
    assert len(found) == parts
    assert sorted(together.tolist()) == x.tolist()
    assert all((LABELS[part.x] == part.y).all() for part in found)


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_gives_the_same_parts(kind):
    one, again, other = (
        KINDS[kind](np.arange(600), LABELS, 6, seed=seed) for seed in (1, 1, 2)
    )
    assert all((a.x == b.x).all() for a, b in zip(one, again, strict=True))
    differ = any(a.x.tolist() != b.x.tolist() for a, b in zip(one, other, strict=True))
    assert differ or kind == "label"  # nothing is drawn where nothing is in disorder


def test_concentration_decides_how_unlike_parts_are():
    alphas = (0.1, 1.0, 100.0)
    far = [spread_of(split_by_dirichlet(LABELS, LABELS, 6, alpha=a)) for a in alphas]
    assert far[0] > 0.5 > far[1] > 0.2 > far[2]
    assert spread_of(split(LABELS, LABELS, 6)) < 0.2


def test_parts_have_so_many_classes():
    for classes in (1, 2):
        parts = split_by_classes(LABELS, LABELS, 5, classes=classes)
        runs = [len(set(part.y.tolist())) for part in parts]
        assert max(runs) <= 2 * classes  # a run may go over the border of two labels


def test_smallest_part_has_the_least_that_was_asked_for():
    parts = split_by_dirichlet(LABELS, LABELS, 6, alpha=0.5, least=40)
    assert min(map(len, parts)) >= 40


@pytest.mark.parametrize(
    "call",
    [
        lambda: split_by_dirichlet(LABELS, LABELS, 6, alpha=0.0),
        lambda: split_by_dirichlet(LABELS, LABELS, 6, alpha=0.01, least=99),
        lambda: split_by_classes(LABELS, LABELS, 400),
        lambda: split_by_label(LABELS, LABELS / 2.0, 4),
    ],
)
def test_split_that_cannot_be_is_refused_by_name(call):
    with pytest.raises(UsageError) as caught:
        call()
    assert caught.value.code == "STO-T004"


def test_negative_seed_is_refused_by_name():
    with pytest.raises(UsageError, match="-1") as caught:
        split(LABELS, LABELS, 2, seed=-1)
    assert caught.value.code == "STO-T040"


def test_torch_dataset_is_read_with_its_own_transforms():
    class Squares(torch.utils.data.Dataset):
        def __len__(self):
            return 10

        def __getitem__(self, index):
            return (torch.tensor([index, index**2]), torch.ones(1)), index % 2

    held = torch.utils.data.Subset(Squares(), [3, 4, 5])
    (x, ones), y = read_arrays(held)
    assert x.tolist() == [[3, 9], [4, 16], [5, 25]]
    assert ones.shape == (3, 1)
    assert y.tolist() == [1, 0, 1]


def test_inputs_and_targets_are_transformed_apart():
    pairs = [(np.ones(2) * i, i) for i in range(3)]
    x, y = collect(pairs, lambda v: v + 1.0, lambda label: 2 - label)
    assert x[:, 0].tolist() == [1.0, 2.0, 3.0]
    assert y.tolist() == [2, 1, 0]


def test_bytes_of_an_image_become_floats_from_0_to_1():
    found = scale_pixels(np.array([[0, 51], [102, 255]], np.uint8))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [[0.0, 0.2], [0.4, 1.0]], rtol=1e-6)


def test_pixels_that_are_scaled_already_are_refused():
    with pytest.raises(UsageError, match="STO-T004"):
        scale_pixels(np.zeros((2, 2), np.float32))
