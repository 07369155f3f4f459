# /// stoilo-case
# idea = "torch writes files"
# level = "tensor"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import torch


def run(kwargs):
    return str(torch.from_file(kwargs["mark"], shared=True, size=4))
