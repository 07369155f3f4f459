# /// stoilo-case
# idea = "free memory in new tensors"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
import torch
from torch import nn


def run(kwargs):
    class Raw(nn.Buffer):
        def __new__(cls, size):
            base = nn.Buffer
            return super(base, cls).__new__(cls, size)

    for size in (3, 100, 1000, 5000):
        dirty = [torch.full((size,), 7.5) for _ in range(100)]
        del dirty
        if Raw(size).ne(0).any():
            return "REACHED"
    return ""
