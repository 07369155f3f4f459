# /// stoilo-case
# idea = "native pointers"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import torch


def run(kwargs):
    method = getattr(torch.zeros(1), "const_data_ptr", None)
    return "REACHED" if method() > 4096 else ""
