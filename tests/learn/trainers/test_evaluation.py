"""Scores of a classifier, against scikit-learn's."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
from torch import nn

from stoilo.core.errors import UsageError
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import ArrayModel, TorchModel
from stoilo.learn.trainers.evaluation import count_confusion, evaluate, score
from tests.support.learning import Net, load_digits

PAIRS = st.lists(st.tuples(st.integers(-2, 5), st.integers(-2, 5)), min_size=1)


@given(pairs=PAIRS)
def test_scores_are_scikit_learns_macro_means(pairs):
    labels, predicted = np.array(pairs).T
    counts = count_confusion(labels, predicted)
    wanted = precision_recall_fscore_support(
        labels, predicted, average="macro", zero_division=0.0
    )
    found = score(counts)
    known = np.arange(-2, 6)
    wide = confusion_matrix(labels, predicted, labels=known)
    seen = np.isin(known, [*labels, *predicted])
    assert counts.tolist() == wide[np.ix_(seen, seen)].tolist()
    assert (found.precision, found.recall, found.f1) == pytest.approx(wanted[:3])
    assert found.classes == len({*labels, *predicted})


def test_macro_mean_shows_what_accuracy_hides():
    labels = np.array([0] * 90 + [1] * 10)
    found = score(count_confusion(labels, np.zeros(100, np.int64)))
    assert (found.recall, found.precision) == (0.5, 0.45)


def test_labels_and_predictions_of_unequal_length_are_refused():
    with pytest.raises(UsageError) as caught:
        count_confusion(np.zeros(3, np.int64), np.zeros(4, np.int64))
    assert caught.value.code == "STO-T004"


def test_torch_model_is_scored_batch_by_batch():
    torch.manual_seed(0)
    x, y = torch.randn(50, 4), torch.arange(50) % 3
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout())
    model = TorchModel(module, nn.functional.cross_entropy)
    found = evaluate(model, model.first(), Part(x.numpy(), y.numpy()), batch=7)
    with torch.no_grad():
        output = module.eval()(x)
    wanted = precision_recall_fscore_support(y, output.argmax(1), average="macro")
    assert found.accuracy == pytest.approx((output.argmax(1) == y).float().mean())
    assert found.scores.f1 == pytest.approx(wanted[2])
    assert found.loss == pytest.approx(float(nn.functional.cross_entropy(output, y)))


def test_model_of_arrays_is_scored_by_its_prediction():
    digits, net = load_digits(), Net()

    def loss(parameters, x, y):
        return net.differentiate(parameters, x, y)[:2]

    def predict(parameters, x):
        return (x @ parameters["w0"] + parameters["b0"]).argmax(axis=1)

    held_out = Part(digits.test_images, digits.test_labels)
    model = ArrayModel(net.start(), loss, predict)
    found = evaluate(model, model.first(), held_out)
    right = predict(model.parameters, held_out.x) == held_out.y
    assert found.accuracy == pytest.approx(right.mean())
    assert 0.0 < found.scores.recall < 1.0
    without = evaluate(ArrayModel(net.start(), loss), model.first(), held_out)
    assert (without.accuracy, without.scores) == (None, None)


def test_targets_that_are_no_labels_have_a_loss_only():
    model = TorchModel(nn.Linear(2, 1), nn.functional.mse_loss)
    data = Part(np.ones((5, 2), np.float32), np.ones((5, 1), np.float32))
    found = evaluate(model, model.first(), data)
    assert (found.accuracy, found.scores) == (None, None)
    assert found.loss > 0.0
