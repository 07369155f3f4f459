# /// stoilo-case
# idea = "function transforms"
# level = "tensor"
# ///
"""grad, vmap and functional_call: per-sample gradients and an ensemble without loops."""
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap


def run(kwargs):
    torch.manual_seed(55)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss_of(params, a, b):
        return nn.functional.mse_loss(functional_call(model, params, (a.unsqueeze(0),)), b.unsqueeze(0))

    rows = vmap(grad(loss_of), in_dims=(None, 0, 0))(params, x, y)
    slow = []
    for a, b in zip(x, y):
        model.zero_grad()
        nn.functional.mse_loss(model(a[None]), b[None]).backward()
        slow.append(model[0].weight.grad.clone())
    same = torch.allclose(rows["0.weight"], torch.stack(slow), atol=1e-6)
    models = [nn.Linear(3, 2) for _ in range(3)]
    stacked, buffers = stack_module_state(models)
    skeleton = models[0]
    ensemble = vmap(lambda p, b, a: functional_call(skeleton, (p, b), (a,)), in_dims=(0, 0, None))
    outputs = ensemble(stacked, buffers, x)
    agree = torch.allclose(outputs[1], models[1](x), atol=1e-6)
    slope = jacrev(lambda v: v**2)(torch.arange(3.0))
    return same, agree, slope, outputs.detach().mean((1, 2))
