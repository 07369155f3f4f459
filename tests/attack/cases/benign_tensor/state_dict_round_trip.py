# /// stoilo-case
# idea = "state dict"
# level = "tensor"
# ///
"""Keep the best weights, go on, come back to them; move them to another model."""
import copy
from collections import OrderedDict

import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(OrderedDict([
            ("fc1", nn.Linear(4, 8)),
            ("act", nn.ELU()),
            ("bn", nn.BatchNorm1d(8)),
        ]))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.features(x)).squeeze(1)


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        return nn.functional.l1_loss(model(x), y).item()


def run(kwargs):
    torch.manual_seed(10)
    x = torch.randn(80, 4)
    y = (x**2).sum(1)
    model = Net()
    optimizer = torch.optim.NAdam(model.parameters(), lr=0.02)
    best, best_loss, kept = None, float("inf"), None
    for epoch in range(25):
        model.train()
        for part in torch.randperm(60).split(20):
            optimizer.zero_grad()
            nn.functional.huber_loss(model(x[part]), y[part]).backward()
            optimizer.step()
        loss = evaluate(model, x[60:], y[60:])
        if loss < best_loss:
            best_loss, best = loss, copy.deepcopy(model.state_dict())
            kept = copy.deepcopy(optimizer.state_dict())
    other = Net()
    message = other.load_state_dict(best)
    same = evaluate(other, x[60:], y[60:]) == best_loss
    partial = {key: value for key, value in best.items() if key.startswith("features")}
    report = Net().load_state_dict(partial, strict=False)
    optimizer.load_state_dict(kept)
    try:
        Net().load_state_dict(partial)
        strict = "accepted"
    except RuntimeError as error:
        strict = "head.weight" in str(error)
    shapes = {key: tuple(value.shape) for key, value in best.items()}
    return {
        "best": best_loss, "same": same, "ok": str(message), "missing": report.missing_keys,
        "unexpected": list(report.unexpected_keys), "strict": strict, "shapes": shapes,
        "steps": [entry["step"].item() for entry in kept["state"].values()],
        "weights": {key: value for key, value in best.items()},
    }
