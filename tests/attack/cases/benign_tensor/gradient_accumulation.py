# /// stoilo-case
# idea = "accumulated gradients"
# level = "tensor"
# ///
"""Small batches whose gradients add up to those of a large one."""
import torch
from torch import nn


def make():
    torch.manual_seed(50)
    return nn.Sequential(nn.Linear(5, 10), nn.Hardswish(), nn.Linear(10, 1)).double()


def run(kwargs):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(32, 5, generator=generator, dtype=torch.float64)
    y = x.prod(1, keepdim=True)
    models = {steps: make() for steps in (1, 4)}
    traces = {}
    for steps, model in models.items():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, dampening=0.1)
        trace = []
        for epoch in range(10):
            optimizer.zero_grad()
            total = 0.0
            for a, b in zip(x.chunk(steps), y.chunk(steps)):
                loss = nn.functional.mse_loss(model(a), b) / steps
                loss.backward()
                total += loss.item()
            gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
            optimizer.step()
            trace.append(total)
        traces[steps] = trace
        model.zero_grad()
    gaps = [abs(a - b) < 1e-9 for a, b in zip(traces[1], traces[4])]
    first = next(models[1].parameters())
    frozen = make().requires_grad_(False)
    return gaps, traces, gradient, first.grad is None, [p.requires_grad for p in frozen.parameters()]
