# /// stoilo-case
# idea = "multilayer perceptron"
# level = "tensor"
# ///
"""Two spirals, told apart by a small perceptron; Adam with full batches."""
import math

import torch
import torch.nn as nn


class Perceptron(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
            nn.Linear(width, 2),
        )

    def forward(self, x):
        return self.layers(x)


def spirals(n):
    t = torch.linspace(0.5, 2.5, n) * math.pi
    one = torch.stack([t * torch.cos(t), t * torch.sin(t)], dim=1)
    points = torch.cat([one, -one]) / 8 + 0.02 * torch.randn(2 * n, 2)
    labels = torch.cat([torch.zeros(n), torch.ones(n)]).long()
    return points, labels


def run(kwargs):
    torch.manual_seed(0)
    x, y = spirals(60)
    model = Perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    loss_fn = nn.CrossEntropyLoss()
    history = []
    for step in range(120):
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            history.append(loss.item())
            print(f"step {step:3d}: loss {loss.item():.4f}")
    model.eval()
    with torch.no_grad():
        accuracy = (model(x).argmax(dim=1) == y).float().mean()
    weights = {name: value.detach() for name, value in model.named_parameters()}
    return {"history": history, "accuracy": accuracy.item(), "weights": weights}
