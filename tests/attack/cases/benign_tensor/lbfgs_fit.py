# /// stoilo-case
# idea = "second order optimiser"
# level = "tensor"
# ///
"""LBFGS with a closure: the decay of two isotopes."""
import torch


def model(t, theta):
    amplitude, rate = theta[:2].exp(), theta[2:].exp()
    return (amplitude[:, None] * torch.exp(-rate[:, None] * t)).sum(0)


def run(kwargs):
    torch.manual_seed(23)
    t = torch.linspace(0, 6, 40, dtype=torch.double)
    truth = torch.tensor([3.0, 1.0, 2.0, 0.3], dtype=torch.double).log()
    counts = model(t, truth) + 0.01 * torch.randn(40, dtype=torch.double)
    theta = torch.tensor([0.5, 0.2, 0.4, -1.0], dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.LBFGS([theta], max_iter=20, history_size=8, tolerance_grad=1e-9)
    values = []

    def closure():
        if torch.is_grad_enabled():
            optimizer.zero_grad()
        loss = (model(t, theta) - counts).pow(2).sum()
        if loss.requires_grad:
            loss.backward()
        values.append(loss.item())
        return loss

    for _ in range(5):
        optimizer.step(closure)
    print("parameters:", [round(v, 3) for v in theta.exp().tolist()])
    return values[0], values[-1] < 0.01, theta.detach().exp()
