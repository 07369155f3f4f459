# /// stoilo-case
# idea = "linear algebra"
# level = "tensor"
# ///
"""Decompositions and what can be differentiated through them."""
import torch
from torch import linalg as LA


def power_iteration(a, steps=50):
    v = torch.ones(a.size(0), dtype=a.dtype)
    for _ in range(steps):
        v = a @ v
        v = v / v.norm()
    return torch.dot(v, a @ v)


def run(kwargs):
    torch.manual_seed(17)
    a = torch.randn(6, 4, dtype=torch.float64)
    s = a.T @ a + torch.eye(4, dtype=torch.float64)
    u, sigma, vh = LA.svd(a, full_matrices=False)
    q, r = torch.linalg.qr(a)
    values, vectors = torch.linalg.eigh(s)
    p, l, upper = torch.linalg.lu(s)
    gaps = [
        (u @ sigma.diag() @ vh - a).abs().max(), (q @ r - a).abs().max(),
        (vectors @ torch.diag_embed(values) @ vectors.mT - s).abs().max(),
        (p @ l @ upper - s).abs().max(), (LA.inv(s) @ s - torch.eye(4)).abs().max(),
        (LA.pinv(a) @ a - torch.eye(4)).abs().max(), power_iteration(s) - values[-1],
        (torch.matrix_exp(torch.zeros(3, 3)) - torch.eye(3)).abs().max(),
    ]
    b = a @ torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    solution = torch.linalg.lstsq(a, b[:, None]).solution.squeeze().round(decimals=9)
    low = torch.nn.Parameter(0.1 * torch.randn(4, 2, dtype=torch.float64))
    optimizer = torch.optim.SGD([low], lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        loss = LA.matrix_norm(s - low @ low.mT) ** 2
        loss.backward()
        optimizer.step()
    s.requires_grad_(True)
    torch.logdet(s).backward()
    gradient = torch.allclose(s.grad, torch.linalg.inv(s).T)
    return {
        "small": [bool(gap.abs() < 1e-8) for gap in gaps], "solution": solution, "loss": loss.item(),
        "gradient": gradient, "rank": int(LA.matrix_rank(a)), "cond": LA.cond(s).item(),
        "det": LA.det(s).item(), "triangular": torch.triu(s.detach()), "norms": LA.vector_norm(a, dim=0),
    }
