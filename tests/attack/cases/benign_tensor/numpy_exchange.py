# /// stoilo-case
# idea = "numpy and back"
# level = "tensor"
# ///
"""Arrays become tensors and tensors arrays, sharing memory where the libraries do."""
import numpy as np
import torch
from torch import nn


def run(kwargs):
    rng = np.random.default_rng(4)
    a = rng.standard_normal((20, 3)).astype(np.float32)
    shared = torch.from_numpy(a)
    shared[0] = 0
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    target = torch.as_tensor(a.sum(axis=1, keepdims=True))
    optimizer = torch.optim.ASGD(model.parameters(), lr=0.1)
    for _ in range(30):
        loss = nn.MSELoss()(model(shared), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    prediction = model(shared).detach().numpy()
    weights = {name: value.detach().cpu().numpy() for name, value in model.state_dict().items()}
    table = np.column_stack([prediction[:, 0], target.numpy()[:, 0]])
    return {
        "zeros": bool((a[0] == 0).all()), "loss": loss.item(), "weights": weights,
        "correlation": np.corrcoef(table.T)[0, 1], "dtype": str(torch.tensor(np.arange(3)).dtype),
        "list": torch.tensor([[1, 2], [3, 4]]).tolist(), "mean": np.mean(torch.arange(4.0).numpy()),
        "stacked": torch.stack([torch.tensor(row) for row in a[:2]]),
    }
