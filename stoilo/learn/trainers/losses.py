"""What is known of a loss before it is computed: whether it can be negative."""

from __future__ import annotations

import math

from stoilo.learn.models import Model, TorchModel

__all__ = ["find_least_loss"]

_CLASSES = {
    "CrossEntropyLoss",
    "MSELoss",
    "L1Loss",
    "SmoothL1Loss",
    "HuberLoss",
    "BCELoss",
    "BCEWithLogitsLoss",
}
_FUNCTIONS = {
    "cross_entropy",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
}


def find_least_loss(model: Model) -> float:
    """Return the least loss of one sample: 0 for torch's losses that are known, else -inf.

    NLLLoss is none of them: it is at least 0 only after a log_softmax. Nor is a class that
    inherits from one of them, whose forward may be another.
    """
    if not isinstance(model, TorchModel):
        return -math.inf
    kind, loss = type(model.loss), model.loss
    is_class = kind.__module__ == "torch.nn.modules.loss" and kind.__name__ in _CLASSES
    place, name = getattr(loss, "__module__", ""), getattr(loss, "__name__", "")
    is_function = place == "torch.nn.functional" and name in _FUNCTIONS
    return 0.0 if is_class or is_function else -math.inf
