# /// stoilo-case
# idea = "storages"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import torch


def run(kwargs):
    value = torch.zeros(1000)
    array = value.numpy()
    value.set_()
    return "REACHED" if value.numel() == 0 and array.size else ""
