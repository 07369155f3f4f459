# /// stoilo-case
# idea = "differential equations"
# level = "tensor"
# ///
"""A vector field learned through a Runge-Kutta solver; a physics-informed network."""
import torch
from torch import nn


def rk4(field, y, t0, t1, steps=8):
    h = (t1 - t0) / steps
    for _ in range(steps):
        k1 = field(y)
        k2 = field(y + h / 2 * k1)
        k3 = field(y + h / 2 * k2)
        k4 = field(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


def pinn():
    torch.manual_seed(41)
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    t = torch.linspace(0, 2, 24).view(-1, 1).requires_grad_(True)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(40):
        y = 1 + t * net(t)
        (dy,) = torch.autograd.grad(y, t, torch.ones_like(y), create_graph=True)
        loss = (dy + y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), (1 + t * net(t))[-1].item()


def run(kwargs):
    torch.manual_seed(40)
    matrix = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    start = torch.randn(16, 2)
    with torch.no_grad():
        end = rk4(lambda y: y @ matrix.T, start, 0.0, 1.0, steps=20)
    field = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(field.parameters(), lr=0.02)
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        loss = (rk4(field, start, 0.0, 1.0, steps=4) - end).abs().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, pinn()
