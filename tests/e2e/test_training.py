"""A researcher's own network is trained by volunteers, and comes back better."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import stoilo
from stoilo.testing.deployment import Deployment


class Network(nn.Module):
    """A perceptron of the researcher's own."""

    def __init__(self, width=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1))
        self._seen = 0

    def forward(self, x):
        self._seen += len(x)
        return self.layers(x)


def train(kwargs):
    model, optimizer = kwargs["model"], kwargs["optimizer"]
    x, y = kwargs["x"], kwargs["y"]
    losses = []
    for _ in range(kwargs["steps"]):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"state": model.state_dict(), "losses": losses, "seen": model._seen}


def is_finite(value):
    return all(bool(torch.isfinite(part).all()) for part in value["state"].values())


def is_alike(one, other):
    pairs = zip(one["state"].values(), other["state"].values(), strict=True)
    return all(torch.allclose(a, b, rtol=1e-3) for a, b in pairs)


def make_task(conn, **options):
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    x = torch.rand(32, 2)
    kwargs = {"model": model, "optimizer": optimizer, "steps": 30}
    kwargs |= {"x": x, "y": x.prod(1, keepdim=True)}
    return model, conn.create_task(train, kwargs, **options)


def check(model, answer):
    assert answer["losses"][-1] < answer["losses"][0] / 4
    assert answer["seen"] == 30 * 32
    before = model.layers[0].weight.detach().clone()
    model.load_state_dict(answer["state"])
    assert not torch.equal(model.layers[0].weight, before)


def test_module_is_trained_by_local_volunteers(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with stoilo.local(volunteers=2, data=tmp_path / "data") as conn:
        validators = {"init_valid_func": is_finite, "compare_valid_func": is_alike}
        for options in ({}, validators):
            model, task = make_task(conn, **options)
            check(model, task.submit().result(120))


@pytest.mark.slow
def test_module_is_trained_by_a_real_deployment(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with Deployment(tmp_path / "data", volunteers=2) as running:
        with stoilo.connect_sync(running.line.connection) as conn:
            model, task = make_task(conn)
            submitted = task.submit()
            check(model, submitted.result(120))
            state = {name: value.tolist() for name, value in model.state_dict().items()}
            again = make_task(conn)[1].submit().result(120)
        assert {k: v.tolist() for k, v in again["state"].items()} == state
        command = [sys.executable, "-m", "stoilo", "audit", "prove", submitted.task_id]
        proof = subprocess.run(
            [*command, "--data", str(tmp_path / "data")],
            capture_output=True,
            check=True,
        )
        assert proof.stdout.startswith(b"c2sp.org/tlog-proof@v1")
