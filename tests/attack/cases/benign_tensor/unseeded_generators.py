# /// stoilo-case
# idea = "seeded noise"
# level = "tensor"
# ///
"""No seed is set here: the admission's seeds everything, on every copy alike."""
import random

import numpy as np
import torch
from torch import nn


def run(kwargs):
    layer = nn.Linear(4, 2)
    generator = torch.Generator()
    generator.manual_seed(3)
    drawn = torch.rand(2), torch.randn(2), torch.randint(0, 9, (4,)), torch.randperm(5)
    fixed = torch.randperm(6, generator=generator)
    noise = np.random.rand(2), random.random()
    return layer.weight.detach(), drawn, fixed, noise
