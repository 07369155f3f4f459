"""Kernels for torch models: level `tensor`, on the processor.

``model`` is an instance of the researcher's own class, ``loss`` his function of (output, y);
``reduction`` says whether it returns the mean over the samples or their sum; ``autocast``,
which may be missing, whether training computes forward in bfloat16.
"""

from __future__ import annotations

import torch

from stoilo.learn.kernels.array_models import count, deal
from stoilo.learn.kernels.encoding import arrive, pack

__all__ = ["evaluate", "gradient", "local_steps"]


def gradient(kwargs):
    """Return the sum of the samples' gradients at the given parameters."""
    kwargs = arrive(kwargs)
    with torch.random.fork_rng(devices=[]):
        model = restore(kwargs)
        x, y = choose(kwargs)
        samples = count(x)
        prepare(model, samples)
        loss, correct = run(model, kwargs, x, y)
        loss.backward()
    sums = {
        name: samples * widen(dense(p.grad))
        for name, p in trained(model)
        if p.grad is not None
    }
    return answer(kwargs, model, samples, samples * loss.item(), correct, sums)


def evaluate(kwargs):
    """Return the sum of the samples' losses and how many were right.

    With the setting ``labels``, an array comes with it: the class that each sample was
    taken for. Otherwise no arrays do.
    """
    kwargs = arrive(kwargs)
    with torch.random.fork_rng(devices=[]):
        model = restore(kwargs)
        x, y = choose(kwargs)
        model.eval()
        with torch.no_grad():
            output = apply(model, x)
            loss, correct = judge(kwargs, output, y, count(x))
    samples = count(x)
    wanted = kwargs["settings"].get("labels") and correct >= 0
    found = {"labels": output.argmax(1)} if wanted else {}
    return answer(kwargs, model, samples, samples * loss.item(), correct, found)


def local_steps(kwargs):
    """Return the parameters after some local steps, or the sum of those steps' gradients.

    Settings: ``steps``, ``batch`` (0: all samples), ``rate``, ``momentum``, ``optimizer``
    (``sgd`` or ``adamw``), ``decay``, ``seed``, ``give`` (``parameters`` or ``sum``: of the
    loss alone), ``proximal`` (pull back to the start).
    """
    with torch.random.fork_rng(devices=[]):
        return take_steps(arrive(kwargs))


def take_steps(kwargs):
    """Make the steps that `local_steps` promises."""
    settings = kwargs["settings"]
    model = restore(kwargs)
    x, y = choose(kwargs)
    samples = count(x)
    optimizer = make_optimizer(model, settings)
    pull = settings.get("proximal", 0.0)
    start = {name: p.detach().clone() for name, p in trained(model)} if pull else {}
    sums = {}
    used, loss_total, right = 0, 0.0, 0
    batches = deal(samples, settings["batch"] or samples, settings["seed"])
    for _ in range(settings["steps"]):
        rows = torch.from_numpy(next(batches))
        prepare(model, len(rows))
        optimizer.zero_grad()
        loss, correct = run(model, kwargs, take(x, rows), take(y, rows))
        loss.backward()
        for name, p in trained(model):
            if p.grad is not None:
                p.grad = dense(p.grad)
                wide = widen(p.grad)
                sums[name] = sums[name] + wide if name in sums else wide.clone()
            if pull:
                toward = pull * (p.detach() - start[name])
                p.grad = toward if p.grad is None else p.grad + toward
        optimizer.step()
        used, right = used + len(rows), right + correct
        loss_total += len(rows) * loss.item()
    if settings.get("give") != "sum":
        sums = {name: widen(p.detach()) for name, p in trained(model)}
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
    for name, p in trained(model):
        p.data = torch.as_tensor(kwargs["parameters"][name]).to(p.dtype, copy=True)
        p.grad = None
    for name, b in model.named_buffers():
        if name in kwargs["buffers"]:
            b.data = torch.as_tensor(kwargs["buffers"][name]).to(b.dtype, copy=True)
    return model


def trained(model):
    """Return names and parameters of what is trained: the rest is frozen."""
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad]


def prepare(model, samples):
    """Put the model into training mode, for so many samples.

    One sample alone has no statistics: BatchNorm then goes by the running ones, which stay.
    """
    model.train()
    if samples > 1:
        return
    kinds = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
    for layer in model.modules():
        if isinstance(layer, kinds) and layer.num_batches_tracked is not None:
            layer.eval()
            layer.num_batches_tracked.add_(1)


def run(model, kwargs, x, y):
    """Return the mean of the samples' losses and how many were right, or -1.

    With ``autocast`` the forward pass is in bfloat16 where torch holds that to be safe.
    """
    halves = bool(kwargs.get("autocast"))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=halves):
        return judge(kwargs, apply(model, x), y, count(x))


def apply(model, x):
    """Return the model's output: several inputs are its arguments, in their order."""
    return model(*x) if isinstance(x, tuple) else model(x)


def judge(kwargs, output, y, samples):
    """Return the mean of the samples' losses and how many were right, or -1."""
    loss = widen(kwargs["loss"](output, y))
    if kwargs["reduction"] == "sum":
        loss = loss / samples
    both = isinstance(output, torch.Tensor) and isinstance(y, torch.Tensor)
    if not both or y.ndim != 1 or y.is_floating_point() or output.ndim != 2:
        return loss, -1
    return loss, int((output.argmax(1) == y).sum())


def widen(tensor):
    """Return half-precision numbers as float32, in which sums of them have room."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def dense(gradient):
    """Return a gradient with all its zeros (embeddings may leave them out)."""
    return gradient.to_dense() if gradient.is_sparse else gradient


def choose(kwargs):
    """Return the ordered samples of the part, as tensors."""
    rows = kwargs["rows"]
    rows = None if rows is None else torch.tensor(rows)
    return take(kwargs["data"]["x"], rows), take(kwargs["data"]["y"], rows)


def take(samples, rows):
    """Return the samples of these rows as tensors; of each array, where it is a tuple."""
    if isinstance(samples, tuple):
        return tuple([take(one, rows) for one in samples])
    found = torch.as_tensor(samples)
    return found if rows is None else found[rows]


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
            name: widen(b.detach()).numpy()
            for name, b in dict(buffers).items()
            if name in kwargs["buffers"]
        },
        "correct": correct if correct >= 0 else -1,
    }
