# /// stoilo-case
# idea = "storing past every setter"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)


def run(kwargs):
    net = Net()
    object.__setattr__(net, "_modules", {"word": "REACHED"})
    return net.__getattr__("word")
