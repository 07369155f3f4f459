# /// stoilo-case
# idea = "probability distributions"
# level = "tensor"
# ///
"""Coupling layers that bend a Gaussian into a moon."""
import torch
from torch import nn


class Coupling(nn.Module):
    def __init__(self, flip, width=16):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 2))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        log_s, t = self.net(a).chunk(2, dim=1)
        b = b * torch.exp(torch.tanh(log_s)) + t
        y = torch.cat([b, a] if self.flip else [a, b], dim=1)
        return y, torch.tanh(log_s).squeeze(1)

    def inverse(self, y):
        a, b = y.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        log_s, t = self.net(a).chunk(2, dim=1)
        b = (b - t) * torch.exp(-torch.tanh(log_s))
        return torch.cat([b, a] if self.flip else [a, b], dim=1)


class Flow(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(bool(i % 2)) for i in range(depth))
        self.register_buffer("zero", torch.zeros(2))

    @property
    def base(self):
        return torch.distributions.Normal(self.zero, torch.ones_like(self.zero))

    def log_prob(self, x):
        total = x.new_zeros(x.size(0))
        for layer in self.layers:
            x, log_det = layer(x)
            total += log_det
        return total + self.base.log_prob(x).sum(1)

    def sample(self, n):
        x = self.base.sample((n,))
        for layer in reversed(self.layers):
            x = layer.inverse(x)
        return x


def run(kwargs):
    torch.manual_seed(35)
    angle = torch.rand(128) * torch.pi
    moon = torch.stack([angle.cos(), angle.sin()], 1) * 2 + 0.1 * torch.randn(128, 2)
    flow = Flow()
    optimizer = torch.optim.RAdam(flow.parameters(), lr=0.02)
    losses = []
    for _ in range(40):
        loss = -flow.log_prob(moon).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        back = flow.layers[0].inverse(flow.layers[0](moon)[0])
        exact = torch.allclose(back, moon, atol=1e-4)
        return losses[::8], flow.sample(3), exact
