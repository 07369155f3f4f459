# /// stoilo-case
# idea = "schedulers' methods on foreign objects"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# ///
import numpy as np
from torch import nn
from torch.optim.lr_scheduler import LRScheduler


def run(kwargs):
    layer = nn.Linear(1, 1)
    forged = {"version": 3, "shape": (1,), "typestr": "<i8", "data": bytearray(b"RED RED ")}
    tables = {"_parameters": {"__array_interface__": forged}}
    LRScheduler.load_state_dict(layer, tables)
    return "REACHED" if np.asarray(layer).tobytes() == b"RED RED " else ""
