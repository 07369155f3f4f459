"""`stoilo learn plan`: a researcher's file measured, cut and printed."""

import json
import sys

import pytest
import torch

from stoilo.cli.main import main

MODEL = """
import helper_of_planned
import torch
from torch import nn

wide = nn.Sequential(
    nn.Linear(4, 2000), nn.Tanh(), nn.Linear(2000, 500), nn.Tanh(), nn.Linear(500, 1)
)
shape = helper_of_planned.SHAPE
pair = wide, torch.rand(*shape)
wrong = wide, torch.rand(64, 5)


def make():
    return pair


def make_words():
    both = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))
    return both, (torch.arange(50).reshape(5, 10),)


def fail():
    raise KeyError("broken")
"""


@pytest.fixture
def plan(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [*sys.path])
    threads = torch.get_num_threads()
    (tmp_path / "helper_of_planned.py").write_text("SHAPE = (64, 4)")
    (tmp_path / "planned.py").write_text(MODEL)

    def run(name, *more):
        argv = [
            "learn",
            "plan",
            f"{tmp_path}/planned.py:{name}",
            *more,
        ]
        code = main(argv)
        said = capsys.readouterr()
        return code, said.out, said.err

    yield run
    torch.set_num_threads(threads)
    for name in ("planned", "helper_of_planned"):
        sys.modules.pop(name, None)


def test_heavy_layers_become_stages_that_are_said(plan):
    where = ["--machines", "3", "--bandwidth", "0.001", "--straight", "--json"]
    code, out, err = plan("make", *where)
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert [one["weight_bytes"] for one in found["layers"]] == [
        4 * 5 * 2000, 0, 4 * 2001 * 500, 0, 4 * 501,
    ]  # fmt: skip
    made = found["plan"]
    assert set(made["config"].split("-")) == {"1"}
    assert (made["stages"][0]["begin"], made["stages"][-1]["end"]) == (0, 5)
    assert len(made["memory_bytes"]) == len(made["stages"])
    assert made["speedup"] >= 1
    assert found["copies"]["config"] == "3"
    assert found["copies"]["speedup"] < made["speedup"]


def test_people_get_layers_stages_and_both_ways(plan):
    code, out, _ = plan("pair", "--machines", "2", "--processes", "2")
    layers, stages, both = out.split("\n\n")
    assert code == 0
    assert layers.splitlines()[0].startswith("layer")
    assert len(layers.splitlines()) == 6
    assert stages.splitlines()[1].split()[0] == "0"
    assert [line.split()[0] for line in both.splitlines()[1:]] == ["plan", "copies"]


def test_function_gives_the_batch_that_the_model_needs(plan):
    code, out, _ = plan("make_words", "--json")
    assert code == 0
    assert len(json.loads(out)["layers"]) == 2


WRONG = [
    (("nothing",), "STO-U004"), (("fail",), "STO-U004"), (("shape",), "STO-T001"),
    (("wide",), "STO-T001"), (("wrong",), "STO-T001"),
    (("make", "--bandwidth", "0"), "STO-T040"), (("make", "--memory", "0.00001"), "STO-T040"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "code"), WRONG)
def test_what_cannot_be_planned_has_a_code(plan, arguments, code):
    status, out, err = plan(*arguments)
    assert (status, out) == (2, "")
    assert f"[{code}]" in err


def test_module_that_is_missing_is_named(plan):
    del plan
    assert main(["learn", "plan", "no.such.module:make"]) == 2
