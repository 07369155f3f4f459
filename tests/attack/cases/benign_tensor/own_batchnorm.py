# /// stoilo-case
# idea = "buffers"
# level = "tensor"
# ///
"""Batch normalisation of one's own with buffers, against the library's."""
import torch
from torch import nn


class MyBatchNorm(nn.Module):
    def __init__(self, n, momentum=0.1, eps=1e-5):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(n))
        self.beta = nn.Parameter(torch.zeros(n))
        self.register_buffer("running_mean", torch.zeros(n))
        self.register_buffer("running_var", torch.ones(n))
        self.register_buffer("seen", torch.tensor(0))
        self.register_parameter("extra", None)
        self.momentum, self.eps = momentum, eps

    def forward(self, x):
        if self.training:
            mean, var = x.mean(0), x.var(0, unbiased=False)
            with torch.no_grad():
                n = x.size(0)
                self.running_mean = (1 - self.momentum) * self.running_mean + self.momentum * mean
                self.running_var.mul_(1 - self.momentum).add_(self.momentum * var * n / (n - 1))
                self.seen += 1
        else:
            mean, var = self.running_mean, self.running_var
        return self.gamma * (x - mean) / (var + self.eps).sqrt() + self.beta


def run(kwargs):
    torch.manual_seed(6)
    mine, theirs = MyBatchNorm(4), nn.BatchNorm1d(4)
    gaps = []
    for _ in range(10):
        x = 2 * torch.randn(16, 4) + 1
        gaps.append((mine(x) - theirs(x)).abs().max().item() < 1e-5)
    mine.eval()
    theirs.eval()
    x = torch.randn(3, 4)
    gap = torch.allclose(mine(x), theirs(x), atol=1e-5)
    names = [name for name, _ in mine.named_buffers()], list(mine.state_dict())
    layer = nn.LayerNorm(4)(x), nn.GroupNorm(2, 4)(x), nn.InstanceNorm1d(3, affine=True)(x[None])
    return gaps, gap, names, mine.running_var, int(mine.seen), [part.detach() for part in layer]
