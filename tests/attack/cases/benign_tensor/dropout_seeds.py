# /// stoilo-case
# idea = "seeded noise"
# level = "tensor"
# ///
"""Monte Carlo dropout: the same seed draws the same masks, another seed others."""
import torch
from torch import nn


def predict(model, x, seed, n=16):
    torch.manual_seed(seed)
    model.train()
    with torch.no_grad():
        draws = torch.stack([model(x) for _ in range(n)])
    return draws.mean(0), draws.std(0)


def run(kwargs):
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(3, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 8), nn.SELU(),
        nn.AlphaDropout(0.1), nn.Linear(8, 1),
    )
    x = torch.randn(5, 3)
    first, again, other = predict(model, x, 1), predict(model, x, 1), predict(model, x, 2)
    state = torch.get_rng_state()
    one = torch.rand(3)
    torch.set_rng_state(state)
    two = torch.rand(3)
    model.eval()
    certain = all(torch.equal(model(x), model(x)) for _ in range(3))
    masks = nn.functional.dropout(torch.ones(10), 0.5, training=True)
    return {
        "same": torch.equal(first[0], again[0]), "differs": not torch.equal(first[0], other[0]),
        "spread": first[1], "state": torch.equal(one, two), "certain": certain, "masks": masks,
        "initial": torch.initial_seed(),
    }
