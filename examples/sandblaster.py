"""Sandblaster: L-BFGS over all data in portions; near the end of a pass, slow ones twice.

On a convex problem it ends where scipy's L-BFGS-B ends.
"""

import digits
import numpy as np
from commandline import run
from scipy.optimize import minimize

import stoilo
from stoilo import learn

PENALTY = 1e-3
PORTIONS = 8


def softmax(w, x, y):
    """Return the sum of the cross-entropies of softmax regression, and its gradient."""
    scores = x @ w["w"] + w["b"]
    scores = scores - scores.max(axis=1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    rows = np.arange(len(y))
    slope = np.exp(logs)
    slope[rows, y] -= 1.0
    return -float(logs[rows, y].sum()), {"w": x.T @ slope, "b": slope.sum(axis=0)}


async def main(conn: stoilo.Connection | None) -> None:
    """Find the minimum with volunteers, then with scipy."""
    data = digits.load()
    model = learn.ArrayModel({"w": np.zeros((64, 10)), "b": np.zeros(10)}, softmax)
    settings = learn.SandblasterSettings(
        penalty=PENALTY, rules=learn.Rules(iterations=100, tolerance=1e-5)
    )
    options = learn.TrainerOptions(tasks=PORTIONS, clip=None)
    async with learn.SandblasterTrainer(
        conn, model, data.train, settings, options=options
    ) as trainer:
        trained = await trainer.train()
    flat = np.concatenate([trained.model["w"].ravel(), trained.model["b"]])
    found, best = objective(flat, data)[0], by_scipy(data)
    print(f"volunteers {found:.9f}, scipy {best:.9f}, {len(trained.epochs)} steps")
    assert abs(found - best) < 1e-6


def objective(flat, data):
    """Return the mean loss with its penalty, and the gradient, of weights in one row."""
    x, y = data.train
    value, slope = softmax({"w": flat[:640].reshape(64, 10), "b": flat[640:]}, x, y)
    gradient = np.concatenate([slope["w"].ravel(), slope["b"]]) / len(x)
    return value / len(x) + 0.5 * PENALTY * flat @ flat, gradient + PENALTY * flat


def by_scipy(data: digits.Digits) -> float:
    """Return the least value of the same objective, found in this process."""
    return float(
        minimize(
            objective, np.zeros(650), (data,), "L-BFGS-B", jac=True,
            options={"ftol": 1e-12},
        ).fun
    )  # fmt: skip


if __name__ == "__main__":
    run(main, __doc__)
