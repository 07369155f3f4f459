# /// stoilo-case
# idea = "gradient clipping"
# level = "tensor"
# ///
"""An Elman network whose gradients explode, tamed three ways."""
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parameters_to_vector, vector_to_parameters


def make():
    torch.manual_seed(13)
    rnn, head = nn.RNN(2, 8, nonlinearity="relu"), nn.Linear(8, 1)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(1.3 * torch.eye(8))
    return rnn, head


def run(kwargs):
    outcomes = {}
    for way in ("norm", "value", "by hand"):
        rnn, head = make()
        parameters = [*rnn.parameters(), *head.parameters()]
        optimizer = torch.optim.Adagrad(parameters, lr=0.05)
        x, norms, losses = torch.randn(25, 10, 2), [], []
        y = x[..., 0].sum(0, keepdim=True).T
        for _ in range(15):
            optimizer.zero_grad()
            _, h = rnn(x)
            loss = (head(h.squeeze(0)) - y).square().mean()
            loss.backward()
            if way == "norm":
                norms.append(clip_grad_norm_(parameters, 1.0, norm_type=2).item())
            elif way == "value":
                clip_grad_value_(parameters, 0.1)
            else:
                total = torch.sqrt(sum((p.grad**2).sum() for p in parameters))
                for p in parameters:
                    p.grad *= torch.clamp(1.0 / (total + 1e-6), max=1.0)
            optimizer.step()
            losses.append(loss.item())
        outcomes[way] = (losses, norms)
    vector = parameters_to_vector(parameters)
    vector_to_parameters(vector * 0, parameters)
    assert all(bool((p == 0).all()) for p in parameters)
    return outcomes, vector.detach()
