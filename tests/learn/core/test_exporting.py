"""A model in Hugging Face's layout, read back by safetensors' own functions."""

import json
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file as load_arrays
from safetensors.torch import load_file, load_model
from torch import nn

from stoilo.core.errors import UsageError
from stoilo.learn import export, fit
from tests.support.points import make_model, make_samples


class Tied(nn.Module):
    """An embedding whose weights are the output layer's, beside a frozen norm."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.norm = nn.BatchNorm1d(4).requires_grad_(requires_grad=False)
        self.out = nn.Linear(4, 6, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(self.norm(self.embed(tokens)))


def read_shards(folder):
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    found = {}
    for name, file in index["weight_map"].items():
        with safe_open(folder / file, "pt") as shard:
            found[name] = shard.get_tensor(name)
            assert shard.metadata() == {"format": "pt"}
    return found, index["metadata"]["total_size"]


async def test_trained_module_is_read_back_by_safetensors(tmp_path):
    x, y = make_samples()
    data = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    trained = await fit(
        "fedavg", nn.Linear(4, 3), data, loss=nn.CrossEntropyLoss(), epochs=1
    )
    fresh = nn.Linear(4, 3)
    load_model(fresh, export(trained.model, tmp_path) / "model.safetensors")
    assert torch.equal(
        fresh.weight, torch.tensor(trained.snapshot.parameters["weight"])
    )
    assert [one.name for one in tmp_path.iterdir()] == ["model.safetensors"]


async def test_trained_arrays_are_read_back(tmp_path):
    trained = await fit("fedavg", make_model(), make_samples(), epochs=1)
    found = load_arrays(export(trained.model, tmp_path / "new") / "model.safetensors")
    for name, array in trained.snapshot.parameters.items():
        assert np.array_equal(found[name], array)


def test_tied_weights_stand_there_once_and_buffers_too(tmp_path):
    model, fresh = Tied(), Tied()
    model.norm.running_mean += 3.0
    file = export(model, tmp_path) / "model.safetensors"
    assert ("embed.weight" in load_file(file)) != ("out.weight" in load_file(file))
    load_model(fresh, file)
    assert torch.equal(fresh.out.weight, model.embed.weight)
    assert torch.equal(fresh.norm.running_mean, model.norm.running_mean)


@pytest.mark.parametrize("most", [1, 64, 200, 10**6])
def test_shards_hold_every_weight_once_within_their_size(most, tmp_path):
    model = nn.Sequential(*(nn.Linear(5, 5) for _ in range(4)))
    export(model, tmp_path, shard_bytes=most)
    sizes = {}
    for file in tmp_path.glob("*.safetensors"):
        held = load_file(file)
        sizes[file.name] = len(held), sum(t.nbytes for t in held.values())
    assert all(size <= most or count == 1 for count, size in sizes.values())
    assert sum(count for count, _ in sizes.values()) == 8
    assert (len(sizes) > 1) == (tmp_path / "model.safetensors.index.json").exists()


def test_index_names_the_file_of_each_weight(tmp_path):
    model = nn.Sequential(*(nn.Linear(5, 5) for _ in range(4)))
    found, total = read_shards(export(model, tmp_path, shard_bytes=200))
    assert total == sum(tensor.nbytes for tensor in model.state_dict().values())
    nn.Sequential(*(nn.Linear(5, 5) for _ in range(4))).load_state_dict(found)
    for name, tensor in model.state_dict().items():
        assert torch.equal(found[name], tensor)


def test_second_export_leaves_nothing_of_the_first(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    export(nn.Sequential(*(nn.Linear(5, 5) for _ in range(4))), tmp_path, 64)
    export(nn.Linear(2, 2), tmp_path)
    names = {one.name for one in tmp_path.iterdir()}
    assert names == {"model.safetensors", "notes.txt"}


def test_half_precision_and_strides_are_kept(tmp_path):
    model = nn.Linear(4, 3).to(torch.bfloat16)
    model.weight.data = torch.randn(4, 3).t().to(torch.bfloat16)
    found = load_file(export(model, tmp_path) / "model.safetensors")
    assert torch.equal(found["weight"], model.weight)
    assert found["weight"].dtype == torch.bfloat16


@dataclass
class Shape:
    width: int = 4


CONFIGS = [
    {"width": 4},
    Shape(),
    SimpleNamespace(to_json_string=lambda: '{"width": 4}'),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_configuration_of_the_model_is_written(config, tmp_path):
    model = nn.Linear(4, 3)
    model.config = config
    export(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text()) == {"width": 4}


def test_configuration_that_is_no_json_is_refused_before_anything_is_written(tmp_path):
    model = nn.Linear(4, 3)
    model.config = {"kind": nn.Linear}
    with pytest.raises(UsageError, match=r"config.*STO-T040"):
        export(model, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("nothing", [{}, 3, nn.Flatten()])
def test_what_has_no_weights_is_refused(nothing, tmp_path):
    with pytest.raises(UsageError, match=r"no weights.*STO-T040"):
        export(nothing, tmp_path)
