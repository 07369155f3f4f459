# /// stoilo-case
# idea = "own autograd function"
# level = "tensor"
# ///
"""Binary weights with a straight-through gradient, as an autograd function of one's own."""
import torch
from torch import nn
from torch.autograd import Function


class Binarize(Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.sign()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        grad = grad_output.clone()
        grad[x.abs() > ctx.limit] = 0
        return grad, None


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x**3
        ctx.save_for_backward(x)
        ctx.mark_non_differentiable()
        return result

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        assert ctx.needs_input_grad[0]
        return 3 * x**2 * grad


class BinaryLinear(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(m, n))
        nn.init.uniform_(self.weight, -1, 1)

    def forward(self, x):
        return x @ Binarize.apply(self.weight, 1.0).t()

    def extra_repr(self):
        return f"{self.weight.shape[1]} to {self.weight.shape[0]}"


def run(kwargs):
    torch.manual_seed(4)
    secret = torch.randn(8, 3).sign()
    x = torch.randn(64, 8)
    y = x @ secret
    model = BinaryLinear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(60):
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    z = torch.tensor([1.0, -2.0], dtype=torch.double, requires_grad=True)
    checked = torch.autograd.gradcheck(Cube.apply, (z,))
    print(model)
    return loss.item(), model.weight.sign().t().eq(secret).float().mean().item(), checked
