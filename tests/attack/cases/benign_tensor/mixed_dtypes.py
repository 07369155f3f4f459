# /// stoilo-case
# idea = "number formats"
# level = "tensor"
# ///
"""bfloat16, half, complex, integer and boolean tensors, and casts between them."""
import torch
from torch import nn


def run(kwargs):
    torch.manual_seed(31)
    x, y = torch.randn(32, 6), torch.randn(32, 1)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)).to(torch.bfloat16)
    master = [p.detach().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.SGD(master, lr=0.1)
    losses = []
    for _ in range(12):
        loss = (model(x.bfloat16()).float() - y).pow(2).mean()
        model.zero_grad()
        (loss * 8).backward()
        for wide, narrow in zip(master, model.parameters()):
            wide.grad = narrow.grad.float() / 8
        optimizer.step()
        with torch.no_grad():
            for wide, narrow in zip(master, model.parameters()):
                narrow.copy_(wide)
        losses.append(loss.item())
    half = torch.linspace(-2, 2, 9).half()
    z = torch.complex(torch.tensor([1.0, 2.0]), torch.tensor([0.5, -1.0])).requires_grad_()
    (z * z.conj()).real.sum().backward()
    polar = torch.polar(torch.ones(3), torch.tensor([0.0, 1.0, 2.0]))
    bits = torch.tensor([5, 3], dtype=torch.uint8)
    mask = half > 0
    promoted = torch.result_type(bits, half), (bits + 1.5).dtype, torch.promote_types(torch.int8, torch.uint8)
    return {
        "losses": losses, "half": half, "narrow": model[0].weight.detach()[0], "gradient": z.grad,
        "polar": polar, "bits": [bits & 1, bits << 2, bits ^ 7, ~mask], "mask": mask.sum().item(),
        "promoted": [str(dtype) for dtype in promoted], "eps": torch.finfo(torch.bfloat16).eps,
        "max": torch.iinfo(torch.int16).max, "int8": (x * 40).clamp(-128, 127).to(torch.int8)[0],
        "default": str(torch.get_default_dtype()), "view": torch.view_as_real(polar),
    }
