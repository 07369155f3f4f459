# /// stoilo-case
# idea = "schedulers' methods on foreign objects"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# ///
from torch import nn
from torch.optim.lr_scheduler import LRScheduler


def run(kwargs):
    methods = LRScheduler.state_dict(nn.Module)
    layer = nn.Linear(1, 1)
    methods["__setstate__"](layer, {"in_features": "REACHED"})
    return layer.in_features
