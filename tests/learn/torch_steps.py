"""Prints the numbers of test_optimizers.py: `python tests/learn/torch_steps.py`."""

import torch

START = {"a": [0.5, -1.0, 2.0], "b": [0.25]}
SLOPES = [
    {"a": [0.3, -0.2, 0.1], "b": [-1.0]},
    {"a": [0.1, 0.4, -0.3], "b": [0.5]},
    {"a": [-0.2, 0.0, 2.0], "b": [0.125]},
    {"a": [1.0, -1.0, 0.5], "b": [-0.25]},
]
KINDS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum and decay": (
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    ),
    "nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.05}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "alpha": 0.9}),
    "adadelta": (torch.optim.Adadelta, {"lr": 1.0, "rho": 0.95}),
}


def walk(kind, settings):
    w = {
        n: torch.tensor(a, dtype=torch.float64).requires_grad_()
        for n, a in START.items()
    }
    optimizer = kind(w.values(), **settings)
    for slope in SLOPES:
        for name, array in slope.items():
            w[name].grad = torch.tensor(array, dtype=torch.float64)
        optimizer.step()
    return [float(x) for array in w.values() for x in array.detach()]


if __name__ == "__main__":
    for name, (kind, settings) in KINDS.items():
        print(f'    "{name}": {walk(kind, settings)},')
