# /// stoilo-case
# idea = "per-sample gradients"
# level = "tensor"
# ///
"""SGD with clipped per-sample gradients and Gaussian noise (differential privacy)."""
import torch
from torch import nn


def per_sample_gradients(model, x, y):
    rows = []
    for a, b in zip(x, y):
        model.zero_grad()
        nn.functional.mse_loss(model(a), b).backward()
        rows.append(torch.cat([p.grad.view(-1).clone() for p in model.parameters()]))
    return torch.stack(rows)


def clip_rows(rows, bound):
    norms = rows.norm(dim=1, keepdim=True)
    return rows * (bound / norms.clamp(min=bound)), (norms > bound).float().mean()


def run(kwargs):
    torch.manual_seed(71)
    x = torch.randn(32, 4)
    y = x @ torch.tensor([[1.0], [0.0], [-1.0], [2.0]]) + 0.5
    model = nn.Linear(4, 1)
    losses, shares = [], []
    for _ in range(12):
        picked = torch.rand(32) < 0.5
        rows, share = clip_rows(per_sample_gradients(model, x[picked], y[picked]), bound=1.0)
        noise = torch.normal(0.0, 0.3, size=(rows.size(1),))
        update = (rows.sum(0) + noise) / max(1, len(rows))
        at = 0
        with torch.no_grad():
            for p in model.parameters():
                p.add_(update[at:at + p.numel()].view_as(p), alpha=-0.5)
                at += p.numel()
            losses.append(nn.functional.mse_loss(model(x), y).item())
        shares.append(share.item())
    return losses, shares, model.weight.detach()
