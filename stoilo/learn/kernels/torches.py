"""Kernels for torch models: level `tensor`, on the processor.

``model`` is an instance of the researcher's own class, ``loss`` his function of (output, y);
``reduction`` says whether it returns the mean over the samples or their sum.
"""

from __future__ import annotations

import torch

from stoilo.learn.kernels.batches import deal
from stoilo.learn.kernels.packing import pack

__all__ = ["evaluate", "gradient", "local_steps"]


def gradient(kwargs):
    """Return the sum of the samples' gradients at the given parameters."""
    model = restore(kwargs)
    x, y = choose(kwargs)
    model.train()
    loss_sum, correct = run(model, kwargs, x, y)
    loss_sum.backward()
    sums = {name: p.grad for name, p in trained(model) if p.grad is not None}
    return answer(kwargs, model, len(x), loss_sum.item(), correct, sums)


def evaluate(kwargs):
    """Return the sum of the samples' losses and how many were right; no arrays."""
    model = restore(kwargs)
    x, y = choose(kwargs)
    model.eval()
    with torch.no_grad():
        loss_sum, correct = run(model, kwargs, x, y)
    return answer(kwargs, model, len(x), loss_sum.item(), correct, {})


def local_steps(kwargs):
    """Return the parameters after some local steps, or the sum of those steps' gradients.

    Settings: ``steps``, ``batch`` (0: all samples), ``rate``, ``momentum``, ``optimizer``
    (``sgd`` or ``adamw``), ``decay``, ``seed``, ``give`` (``parameters`` or ``sum``).
    """
    settings = kwargs["settings"]
    model = restore(kwargs)
    x, y = choose(kwargs)
    model.train()
    optimizer = make_optimizer(model, settings)
    sums = {name: torch.zeros_like(p) for name, p in trained(model)}
    used, loss_total, right = 0, 0.0, 0
    batches = deal(len(x), settings["batch"] or len(x), settings["seed"])
    for _ in range(settings["steps"]):
        rows = torch.from_numpy(next(batches))
        optimizer.zero_grad()
        loss_sum, correct = run(model, kwargs, x[rows], y[rows])
        (loss_sum / len(rows)).backward()
        for name, p in trained(model):
            if p.grad is not None:
                sums[name] += p.grad
        optimizer.step()
        used, right = used + len(rows), right + correct
        loss_total += loss_sum.item()
    if settings.get("give") != "sum":
        sums = {name: p.detach() for name, p in trained(model)}
    return answer(kwargs, model, used, loss_total, min(right, used), sums)


def make_optimizer(model, settings):
    """Return the local optimiser that the settings name."""
    rate = settings["rate"]
    if settings.get("optimizer", "sgd") == "adamw":
        decay = settings.get("decay", 0.01)
        return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    momentum, decay = settings.get("momentum", 0.0), settings.get("decay", 0.0)
    return torch.optim.SGD(
        model.parameters(), lr=rate, momentum=momentum, weight_decay=decay
    )


def restore(kwargs):
    """Return the model with the given parameters and buffers."""
    model = kwargs["model"]
    seed = kwargs["settings"].get("seed")
    if seed is not None:
        torch.manual_seed(seed)
    with torch.no_grad():
        for name, p in trained(model):
            p.copy_(torch.as_tensor(kwargs["parameters"][name]))
            p.grad = None
        for name, b in model.named_buffers():
            if name in kwargs["buffers"]:
                b.copy_(torch.as_tensor(kwargs["buffers"][name]))
    return model


def trained(model):
    """Return names and parameters of what is trained: the rest is frozen."""
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad]


def run(model, kwargs, x, y):
    """Return the sum of the samples' losses and how many were classified rightly, or -1."""
    output = model(x)
    loss = kwargs["loss"](output, y)
    if kwargs["reduction"] == "mean":
        loss = loss * len(x)
    if y.ndim != 1 or y.is_floating_point() or output.ndim != 2:
        return loss, -1
    return loss, int((output.argmax(1) == y).sum())


def choose(kwargs):
    """Return the ordered samples of the part, as tensors."""
    x = torch.as_tensor(kwargs["data"]["x"])
    y = torch.as_tensor(kwargs["data"]["y"])
    if kwargs["rows"] is None:
        return x, y
    rows = torch.tensor(kwargs["rows"])
    return x[rows], y[rows]


def answer(kwargs, model, samples, loss_sum, correct, tensors):
    """Return what every kernel returns; arrays as numpy's."""
    buffers = {} if kwargs["settings"].get("frozen_buffers") else model.named_buffers()
    given = {name: t.detach().numpy() for name, t in tensors.items()}
    return {
        "version": kwargs["version"],
        "samples": samples,
        "loss_sum": loss_sum,
        "tensors": pack(kwargs, given),
        "buffers": {
            name: b.detach().numpy()
            for name, b in dict(buffers).items()
            if name in kwargs["buffers"]
        },
        "correct": correct if correct >= 0 else -1,
        "numbers": {},
    }
