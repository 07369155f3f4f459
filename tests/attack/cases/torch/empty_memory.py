# /// stoilo-case
# idea = "memory as it lay"
# level = "tensor"
# stopped_by = "language"
# goal = "inside"
# ///
import torch


def run(kwargs):
    for _ in range(100):
        used = torch.full((256,), 7.0)
        del used
        found = torch.empty(256)
        if (found == 7.0).any():
            return "REACHED"
    return ""
