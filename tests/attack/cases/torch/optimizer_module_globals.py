# /// stoilo-case
# idea = "modules inside torch modules"
# level = "tensor"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import torch


def run(kwargs):
    return torch.serialization.os.mkdir(kwargs["mark"])
