# /// stoilo-case
# idea = "kernels that trust shapes"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import torch
from torch import nn


def run(kwargs):
    weight = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.Adam([weight], lr=0.1, fused=True)
    for _ in range(2):
        weight.grad = torch.ones(3)
        optimizer.step()
        optimizer.state[weight]["exp_avg"] = torch.zeros(1)
    return "REACHED"
