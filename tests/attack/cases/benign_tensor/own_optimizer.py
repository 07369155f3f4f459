# /// stoilo-case
# idea = "own optimizer"
# level = "tensor"
# ///
"""Optimisers of one's own, with state, groups and closures: Lion and Adam with decay."""
import torch
from torch import nn
from torch.optim import Optimizer


class Lion(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        if not 0.0 <= lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        defaults = dict(lr=lr, betas=betas, weight_decay=weight_decay)
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad = p.grad
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                    state["step"] = 0
                exp_avg = state["exp_avg"]
                beta1, beta2 = group["betas"]
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                update = exp_avg * beta1 + grad * (1 - beta1)
                p.add_(torch.sign(update), alpha=-group["lr"])
                exp_avg.mul_(beta2).add_(grad, alpha=1 - beta2)
                state["step"] += 1
        return loss


class Adam2(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super(Adam2, self).__init__(params, {"lr": lr})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["t"] = 0
                    state["m"] = torch.zeros_like(p.data)
                    state["v"] = torch.zeros_like(p.data)
                state["t"] += 1
                state["m"] = 0.9 * state["m"] + 0.1 * p.grad.data
                state["v"] = 0.99 * state["v"] + 0.01 * p.grad.data**2
                m = state["m"] / (1 - 0.9 ** state["t"])
                v = state["v"] / (1 - 0.99 ** state["t"])
                p.data -= group["lr"] * m / (v.sqrt() + 1e-8)


def fit(model, optimizer, x, y):
    losses = []
    for _ in range(40):
        def closure():
            optimizer.zero_grad()
            loss = nn.functional.smooth_l1_loss(model(x), y)
            loss.backward()
            return loss

        if isinstance(optimizer, Lion):
            losses.append(optimizer.step(closure).item())
        else:
            losses.append(closure().item())
            optimizer.step()
    return losses[::8]


def run(kwargs):
    torch.manual_seed(21)
    x = torch.rand(50, 1) * 4 - 2
    y = torch.sin(2 * x)
    results = {}
    for kind in (Lion, Adam2):
        model = nn.Sequential(nn.Linear(1, 16), nn.SiLU(), nn.Linear(16, 1))
        head, tail = list(model[0].parameters()), list(model[2].parameters())
        optimizer = kind([{"params": head}, {"params": tail, "lr": 0.005}], lr=0.01)
        results[kind.__name__] = fit(model, optimizer, x, y)
        results[kind.__name__ + " groups"] = [g["lr"] for g in optimizer.param_groups]
    saved = optimizer.state_dict()
    results["state"] = sorted(saved["state"][0])
    results["v"] = saved["state"][3]["v"]
    return results
