"""A stage's versions: exact gradients, shared tensors, and going on elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.func import functional_call

from stoilo.learn.cells.pipeline import cut
from stoilo.learn.cells.schedules import (
    Places,
    leave_out,
    order_all,
    versions_met,
)
from stoilo.learn.cells.stash import Saves, Stage, weigh
from tests.support.pipelines import cross_entropy, make_dropping, make_model
from tests.support.simulatedpipeline import simulate

CUTS, SIZE, BATCHES = (2, 4, 6), 8, 40
PLACES = Places((1,) * 4)
SETTINGS = {"rate": 0.05, "momentum": 0.5}


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Unstashed(Stage):
    """A stage whose batches in flight see the newest weights at their backward."""

    def update(self) -> None:
        super().update()
        for weights in self._versions.values():
            for name, leaf in weights.items():
                leaf.data.copy_(self._trained[name].data)


class Line:
    """Four stages in this process, driven in the order of a simulation."""

    def __init__(
        self, kind: type[Stage] = Stage, done: int = 0, *, checks: bool = False
    ) -> None:
        self.checks = checks
        self.model = make_model()
        self.stages = [kind(part, SETTINGS) for part in cut(self.model, CUTS)]
        orders = order_all("1f1b", PLACES, BATCHES)
        self.versions = [versions_met(ops) for ops in orders]
        left = [leave_out(ops, done, 1) for ops in orders]
        self.ops = [(one.stage, one) for one in simulate(left, PLACES)]
        self.made: dict[tuple[int, int], Any] = {}
        self.met: dict[int, list[dict[str, torch.Tensor]]] = {}
        self.errors: list[float] = []  # relative, one a backward

    def batch(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        draw = np.random.default_rng(number)
        x = draw.normal(size=(SIZE, 6))
        return torch.from_numpy(x), torch.from_numpy(draw.integers(0, 3, SIZE))

    def run(self, until: int | None = None) -> Line:
        """Do all; or end where every stage has made `until` updates."""
        for stage, one in self.ops:
            if until is not None and self.stages[stage].version >= until:
                continue
            deed = {"F": self.forward, "B": self.backward}.get(one.kind)
            if deed is not None:
                deed(stage, one.batch)
            elif one.kind == "sync":
                self.stages[stage].update()
        return self

    def forward(self, stage: int, batch: int) -> None:
        x, y = self.batch(batch)
        given = x if stage == 0 else self.made["F", stage - 1, batch]
        version = self.versions[stage][batch]
        weights = self.stages[stage]._versions[version]
        copied = {name: one.detach().clone() for name, one in weights.items()}
        self.met.setdefault(batch, []).append(copied)
        made = self.stages[stage].forward(batch, given, version)
        self.made["F", stage, batch] = made
        if stage == len(self.stages) - 1:
            self.stages[stage].end_in(batch, cross_entropy(made, y))

    def backward(self, stage: int, batch: int) -> None:
        slope = self.made.get(("B", stage + 1, batch))
        back = self.stages[stage].backward(batch, slope, 1.0)
        self.made["B", stage, batch] = back
        if not self.checks:
            return
        true, sums = self.true_gradient(batch, stage), self.stages[stage].sums
        off = sum(float((sums[n] - true[n]).norm()) ** 2 for n in true) ** 0.5
        self.errors.append(
            off / sum(float(g.norm()) ** 2 for g in true.values()) ** 0.5
        )

    def true_gradient(self, batch: int, stage: int) -> dict[str, torch.Tensor]:
        """Return the gradient at the weights that the batch met going forward."""
        x, y = self.batch(batch)
        leaves = {
            name: one.clone().requires_grad_()
            for weights in self.met[batch]
            for name, one in weights.items()
        }
        output = functional_call(self.model, leaves, (x,))
        own = {name: leaves[name] for name in self.met[batch][stage]}
        slopes = torch.autograd.grad(cross_entropy(output, y), list(own.values()))
        return dict(zip(own, slopes, strict=True))

    @property
    def results(self) -> list[np.ndarray]:
        return [t.numpy() for one in self.stages for t in one.results().values()]


def same(one: Line, other: Line) -> bool:
    pairs = zip(one.results, other.results, strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_every_gradient_is_exact_at_the_weights_that_its_batch_met():
    line = Line(checks=True).run()
    assert line.errors == [0.0] * 4 * BATCHES


def test_without_stashing_gradients_are_off():
    assert max(Line(Unstashed, checks=True).run().errors) > 1e-3


def test_versions_are_shared_and_no_more_than_stages_behind():
    line = Line()
    most = [0] * 4
    for stage, one in line.ops:
        line.ops = [(stage, one)]
        line.run()
        most[stage] = max(most[stage], len(line.stages[stage]._flying))
        line.stages[stage].forget(line.versions[stage].get(one.batch, 0))
    assert most == [4, 3, 2, 1]
    flying = Stage(make_model(), {})
    for batch in range(3):
        flying.forward(batch, line.batch(batch)[0], 0)
    (shared,) = {id(one.weights["0.weight"]) for one in flying._flying.values()}
    assert shared == id(flying._versions[0]["0.weight"])


def test_forgotten_versions_are_gone_and_the_newest_stays():
    stage = Stage(make_model(), SETTINGS)
    for _ in range(5):
        stage.update()
    stage.forget(3)
    assert list(stage._versions) == [3, 4, 5]
    stage.forget(9)
    assert list(stage._versions) == [5]


def save_all(line: Line, folder: Path, done: int) -> None:
    for number, stage in enumerate(line.stages):
        saves = Saves(folder / f"{number}", "job", done, 2)
        saves.open()
        saves.save(done, stage, [[0.0, 2.0, 0.1, -1.0], [99.0, 2.0, 0.1, -1.0]])
        saves.close()


def load_all(folder: Path, done: int, *, only_newest: bool = False) -> Line:
    line = Line(done=done)
    for number, stage in enumerate(line.stages):
        saves = Saves(folder / f"{number}", "job", done, 2)
        assert saves.open() == [done]
        kept = saves.read(done)
        saves.close()
        assert kept.losses == [[0.0, 2.0, 0.1, -1.0]]
        if only_newest:
            newest = kept.weights[str(kept.version)]
            kept = replace(kept, weights=dict.fromkeys(kept.weights, newest))
        stage.take_up(kept)
    return line


@pytest.mark.parametrize("done", [1, 3, 17, 39])
def test_a_line_goes_on_elsewhere_with_the_same_bits(tmp_path: Path, done: int):
    save_all(Line().run(done), tmp_path, done)
    assert same(load_all(tmp_path, done).run(), Line().run())


def test_a_line_without_its_older_versions_does_not(tmp_path: Path):
    save_all(Line().run(17), tmp_path, 17)
    assert not same(load_all(tmp_path, 17, only_newest=True).run(), Line().run())


def test_saves_of_another_job_are_not_taken(tmp_path: Path):
    save_all(Line().run(3), tmp_path, 3)
    saves = Saves(tmp_path / "0", "another", 3, 2)
    assert saves.open() == []
    saves.close()


def test_only_so_many_saves_are_kept(tmp_path: Path):
    saves, stage = Saves(tmp_path, "job", 5, 2), Stage(make_model(), SETTINGS)
    saves.open()
    for done in range(1, 21):
        stage.update()
        saves.save(done, stage, [])
    saves.close()
    assert Saves(tmp_path, "job", 5, 2).open() == [15, 20]


def test_layers_that_write_over_their_input_leave_the_stash_alone():
    relu = make_dropping("float64")[1:2].eval()
    stage, x = Stage(relu, {}), torch.tensor([[-1.0, 2.0]])
    stage.forward(0, x, 0)
    assert x.tolist() == [[-1.0, 2.0]]
    back = stage.backward(0, torch.ones(1, 2), 1.0)
    assert back.tolist() == [[0.0, 1.0]]


def test_a_batchs_weight_is_its_share_of_an_update():
    assert weigh([8, 8, 4], 1) == [1.0, 1.0, 1.0]
    assert weigh([6, 2, 4], 2) == [0.75, 0.25, 1.0]
