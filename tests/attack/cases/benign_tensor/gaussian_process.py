# /// stoilo-case
# idea = "linear algebra"
# level = "tensor"
# ///
"""A Gaussian process whose hyperparameters are learned through a Cholesky factor."""
import math

import torch
from torch.distributions import MultivariateNormal, constraints, transform_to


def kernel(a, b, length, scale):
    return scale**2 * torch.exp(-0.5 * (a[:, None] - b[None, :]) ** 2 / length**2)


def negative_log_likelihood(x, y, raw):
    length, scale, noise = (p.exp() for p in raw)
    K = kernel(x, x, length, scale) + (noise**2 + 1e-6) * torch.eye(len(x), dtype=x.dtype)
    L = torch.linalg.cholesky(K)
    alpha = torch.cholesky_solve(y[:, None], L)
    return 0.5 * y @ alpha[:, 0] + L.diagonal().log().sum() + 0.5 * len(x) * math.log(2 * math.pi)


def run(kwargs):
    torch.manual_seed(30)
    x = torch.linspace(0, 5, 25, dtype=torch.float64)
    y = torch.sin(2 * x) + 0.1 * torch.randn(25, dtype=torch.float64)
    raw = torch.zeros(3, dtype=torch.float64).sub(0.5).requires_grad_()
    optimizer = torch.optim.LBFGS([raw], lr=0.5, max_iter=15, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = negative_log_likelihood(x, y, raw)
        value.backward()
        return value

    start = closure().item()
    optimizer.step(closure)
    end = closure().item()
    length, scale, noise = raw.detach().exp()
    K = kernel(x, x, length, scale) + noise**2 * torch.eye(25, dtype=x.dtype)
    at = torch.tensor([0.25, 2.5, 7.0], dtype=x.dtype)
    mean = kernel(at, x, length, scale) @ torch.linalg.solve(K, y)
    check = MultivariateNormal(torch.zeros(25, dtype=x.dtype), K).log_prob(y)
    positive = transform_to(constraints.positive)(torch.tensor(-1.0))
    return start, end, raw.detach(), mean, check, positive
