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


def masking(module, args, named=None):
    return None if named is None else (args, {"where": False})


def run(kwargs):
    root = Root()
    handle = root.register_forward_pre_hook(masking)
    handle.extra_dict_ref[0]()[handle.id] = True
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        if root(np.ones(size)).any():
            return "REACHED"
    return ""
