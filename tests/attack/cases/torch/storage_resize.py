# /// stoilo-case
# idea = "storages"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import torch


def run(kwargs):
    value = torch.zeros(4)
    value.untyped_storage().resize_(1)
    return "REACHED"
