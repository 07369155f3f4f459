# /// stoilo-case
# idea = "learning rate schedules"
# level = "tensor"
# ///
"""Every usual schedule of the learning rate, and the same model under each."""
import math

import torch
from torch import nn
from torch.optim import lr_scheduler as schedules
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, ReduceLROnPlateau


def warmup_cosine(warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        progress = (step - warmup) / max(1, total - warmup)
        return 0.5 * (1 + math.cos(math.pi * progress))
    return factor


def make(name, optimizer):
    match name:
        case "step":
            return schedules.StepLR(optimizer, step_size=4, gamma=0.5)
        case "multistep":
            return schedules.MultiStepLR(optimizer, milestones=[3, 6, 9], gamma=0.3)
        case "exponential":
            return schedules.ExponentialLR(optimizer, 0.9)
        case "cosine":
            return CosineAnnealingLR(optimizer, T_max=12, eta_min=1e-4)
        case "restarts":
            return schedules.CosineAnnealingWarmRestarts(optimizer, T_0=4, T_mult=2)
        case "lambda":
            return LambdaLR(optimizer, lr_lambda=warmup_cosine(3, 12))
        case "cycle":
            return schedules.OneCycleLR(optimizer, max_lr=0.2, total_steps=12)
        case "chain":
            first = schedules.LinearLR(optimizer, start_factor=0.1, total_iters=3)
            second = schedules.PolynomialLR(optimizer, total_iters=9, power=2)
            return schedules.SequentialLR(optimizer, [first, second], milestones=[3])
        case _:
            return ReduceLROnPlateau(optimizer, mode="min", factor=0.5, patience=1)


def run(kwargs):
    results = {}
    names = ["step", "multistep", "exponential", "cosine", "restarts", "lambda", "cycle"]
    for name in [*names, "chain", "plateau"]:
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        x = torch.randn(20, 3)
        y = x.sum(dim=1, keepdim=True) + 0.1
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        scheduler = make(name, optimizer)
        rates = []
        for _ in range(12):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            rates.append(optimizer.param_groups[0]["lr"])
            if name == "plateau":
                scheduler.step(loss.item())
            else:
                scheduler.step()
        results[name] = (rates, loss.item(), scheduler.state_dict().get("last_epoch"))
    return results
