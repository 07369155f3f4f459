# /// stoilo-case
# idea = "native pointers"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import torch


def run(kwargs):
    return "REACHED" if torch.zeros(1).data_ptr() > 4096 else ""
