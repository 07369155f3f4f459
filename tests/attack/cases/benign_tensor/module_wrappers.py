# /// stoilo-case
# idea = "wrappers around modules"
# level = "tensor"
# ///
import torch
from torch import nn
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.extra = 5
    def forward(self, x):
        return self.layer(x)
    def helper(self, n):
        return n + self.extra
class Wrapper(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)
    def forward(self, x):
        return self.module(x) * 2
class Loud(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(2))
        self.count = 0
    def __setattr__(self, name, value):
        if name == "count":
            value = value + 1
        super().__setattr__(name, value)
    def forward(self, x):
        self.count = self.count
        return (self.w * x).sum()
def run(kw):
    torch.manual_seed(0)
    m = Wrapper(Inner())
    y = m(torch.ones(1, 2))
    l = Loud(); l(torch.ones(2)).backward()
    return [m.helper(2), m.extra, list(dict(m.named_parameters())), y.shape, l.count, l.w.grad.tolist(), hasattr(m, "nope"), list(m.state_dict()), len(list(l.parameters()))]
