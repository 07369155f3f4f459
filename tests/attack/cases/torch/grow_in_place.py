# /// stoilo-case
# idea = "storages"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import torch


def run(kwargs):
    value = torch.zeros(1)
    value.resize_(1000)
    return "REACHED" if value.numel() == 1000 else ""
