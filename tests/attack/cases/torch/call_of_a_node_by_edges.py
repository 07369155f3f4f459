# /// stoilo-case
# idea = "backward kernels without the engine"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import torch


def run(kwargs):
    values = torch.rand(64, 16, requires_grad=True)
    total = torch.nn.functional.layer_norm(values, (16,)).sum()
    node = total.grad_fn.next_functions[0][0]
    found = node(torch.ones(63, 16))[0]  # the kernel reads 64 rows
    return "REACHED" if found.shape == (64, 16) else ""
