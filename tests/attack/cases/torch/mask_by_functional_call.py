# /// stoilo-case
# idea = "masks that are added later"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import numpy as np
from torch import nn
from torch.func import functional_call


class Root(nn.Module):
    forward = np.sqrt


def run(kwargs):
    root = Root()
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        if functional_call(root, {}, (np.ones(size),), {"where": False}).any():
            return "REACHED"
    return ""
