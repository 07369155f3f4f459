# /// stoilo-case
# idea = "checkpoints in memory"
# level = "tensor"
# ///
import io

import torch
from torch import nn


def train(model, optimizer, steps):
    x = torch.linspace(-1, 1, 16).reshape(-1, 1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((model(x) - x**2) ** 2).mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def make():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, torch.optim.Adam(model.parameters(), lr=0.05)


def run(kwargs):
    model, optimizer = make()
    first = train(model, optimizer, 10)
    file = io.BytesIO()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 10}
    torch.save(state, file)
    after = train(model, optimizer, 10)
    other, again = make()
    file.seek(0)
    kept = torch.load(file, map_location="cpu", weights_only=True)
    other.load_state_dict(kept["model"])
    again.load_state_dict(kept["optimizer"])
    return [first, after, train(other, again, 10) == after, kept["step"], list(kept["model"])]
