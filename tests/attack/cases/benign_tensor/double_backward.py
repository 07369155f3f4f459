# /// stoilo-case
# idea = "higher derivatives"
# level = "tensor"
# ///
"""Gradients of gradients: a penalty, Hessian products, and one meta-learning step."""
import torch
from torch import autograd, nn
from torch.autograd.functional import hessian, jacobian


def rosenbrock(p):
    return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2


def gradient_penalty(critic, real, fake):
    alpha = torch.rand(real.size(0), 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    (gradients,) = autograd.grad(
        outputs=critic(mixed).sum(), inputs=mixed, create_graph=True, retain_graph=True
    )
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


def adapt(weights, x, y, lr=0.1):
    loss = ((x @ weights[0] + weights[1]) - y).pow(2).mean()
    grads = torch.autograd.grad(loss, weights, create_graph=True)
    return [w - lr * g for w, g in zip(weights, grads)]


def run(kwargs):
    torch.manual_seed(22)
    p = torch.tensor([-1.0, 1.5], dtype=torch.float64, requires_grad=True)
    path = []
    for _ in range(8):
        (g,) = torch.autograd.grad(rosenbrock(p), p, create_graph=True)
        H = torch.stack([torch.autograd.grad(part, p, retain_graph=True)[0] for part in g])
        with torch.no_grad():
            p -= torch.linalg.solve(H, g)
        path.append(rosenbrock(p).item())
    same = torch.allclose(hessian(rosenbrock, p.detach()), H, rtol=1.0)
    slope = jacobian(lambda v: torch.stack([v.sum(), v.prod()]), torch.tensor([2.0, 3.0]))
    critic = nn.Sequential(nn.Linear(2, 16), nn.Softplus(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
    penalties = []
    for _ in range(20):
        real, fake = torch.randn(16, 2) + 2, torch.randn(16, 2)
        penalty = gradient_penalty(critic, real, fake)
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        penalties.append(penalty.item())
    weights = [torch.zeros(1, 1, requires_grad=True), torch.zeros(1, requires_grad=True)]
    outer = torch.optim.SGD(weights, lr=0.05)
    meta = []
    for _ in range(15):
        slope_of_task = torch.randn(1, 1)
        x = torch.randn(10, 1)
        fast = adapt(weights, x, x @ slope_of_task + 1)
        loss = ((x @ fast[0] + fast[1]) - (x @ slope_of_task + 1)).pow(2).mean()
        outer.zero_grad()
        loss.backward()
        outer.step()
        meta.append(loss.item())
    return path, same, slope, penalties[::5], meta
