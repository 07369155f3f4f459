# /// stoilo-case
# idea = "attributes as a dictionary"
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
    vars(net)["_modules"] = {"layer": "REACHED"}
    return net.layer
