# /// stoilo-case
# idea = "masks that are added later"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import numpy as np
from torch import nn


class Root(nn.Module):
    forward = np.sqrt


def run(kwargs):
    root = Root()
    root.register_forward_pre_hook(
        lambda module, args, named: (args, {"where": False}), with_kwargs=True
    )
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        if root(np.ones(size)).any():
            return "REACHED"
    return ""
