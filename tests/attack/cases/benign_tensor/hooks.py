# /// stoilo-case
# idea = "hooks"
# level = "tensor"
# ///
"""Activations and gradients watched, and changed, through hooks."""
import torch
from torch import nn


class Watcher:
    def __init__(self, model):
        self.seen = {}
        self._handles = [
            module.register_forward_hook(self._remember(name))
            for name, module in model.named_modules()
            if isinstance(module, (nn.Linear, nn.Tanh))
        ]

    def _remember(self, name):
        def hook(module, inputs, output):
            self.seen.setdefault(name, []).append(output.detach().abs().mean().item())
        return hook

    def remove(self):
        for handle in self._handles:
            handle.remove()


def run(kwargs):
    torch.manual_seed(15)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    watcher = Watcher(model)
    x, y = torch.randn(10, 4), torch.randint(0, 2, (10,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    gradients = []
    handle = model[2].weight.register_hook(lambda grad: gradients.append(grad.norm().item()) or grad * 0.5)
    backward = model[1].register_full_backward_hook(
        lambda module, grad_in, grad_out: (grad_in[0].clamp(-0.01, 0.01),)
    )
    before = model.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
    for _ in range(5):
        optimizer.zero_grad()
        hidden = model[0](x)
        hidden.retain_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    watcher.remove()
    handle.remove()
    backward.remove()
    before.remove()
    quiet = {name: len(values) for name, values in watcher.seen.items()}
    model(x)
    same = quiet == {name: len(values) for name, values in watcher.seen.items()}
    return watcher.seen, gradients, loss.item(), same
