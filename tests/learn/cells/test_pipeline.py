"""Pipelines on groups of processes: what the kernels compute, the delayed rule, deaths."""

from __future__ import annotations

import contextlib
import os
import signal
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from stoilo.core.errors import UsageError
from stoilo.learn.cells.pipeline import Pipeline, cut
from stoilo.learn.cells.timeline import measure_utilisation
from stoilo.learn.kernels import torch_models
from tests.support.pipelines import (
    GroupLinks,
    Task,
    make_dropping,
    make_halting,
    make_model,
    make_normed,
    run_delayed,
)
from tests.support.ranks import run_ranks

FOUR = (2, 4, 6)


def do_all(
    rank: int, size: int, tasks: list[Task], folder: Path | None = None
) -> list[Any]:
    """Return each task's answer and spans, which are at rank 0."""
    found = []
    for task in tasks:
        pipeline = Pipeline(task.cuts, **dict(task.options))
        links = GroupLinks(rank, size, dist.group.WORLD, folder)
        answer = pipeline.execute(task.kernel, task.job(), links)
        found.append((answer, pipeline.spans))
    return found


def do_alone(rank: int, size: int, tasks: list[Task]) -> list[Any]:
    """Return each task's answer of a pipeline of one stage, and the kernel's."""
    kernels = [getattr(torch_models, task.kernel)(task.job()) for task in tasks]
    found = do_all(rank, size, tasks)
    return [(ours, theirs) for (ours, _), theirs in zip(found, kernels, strict=True)]


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the members
    yield
    torch.set_num_threads(threads)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Say whether arrays of the same names have the same bits."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name])
        for name in one
    )


def task(
    cuts: tuple[int, ...] = FOUR, kernel: str = "local_steps", **given: Any
) -> Task:
    """Return a task; settings are the kernel's, other names the layout's or the task's."""
    own = {n: given.pop(n) for n in ("kind", "make", "samples") if n in given}
    layout = ("replicas", "schedule", "micro", "vertical", "every")
    options = tuple((n, given.pop(n)) for n in layout if n in given)
    return Task(cuts, kernel, settings=tuple(given.items()), options=options, **own)


ALONE = {
    "plain": task(()),
    "float32": task((), kind="float32"),
    "momentum": task((), momentum=0.9, decay=0.01),
    "adamw": task((), optimizer="adamw", rate=0.01),
    "proximal": task((), proximal=0.1),
    "sum": task((), give="sum"),
    "normed": task((), make=make_normed),
    "gradient": task((), "gradient", micro=1),
    "evaluate": task((), "evaluate", micro=1, labels=True),
}


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return dict(zip(ALONE, run_ranks(do_alone, 1, [*ALONE.values()])[0], strict=True))


@pytest.mark.parametrize("name", ALONE)
def test_one_stage_computes_what_the_kernel_does(alone: dict[str, Any], name: str):
    ours, theirs = alone[name]
    for arrays in ("tensors", "buffers"):
        assert same(ours.pop(arrays), theirs.pop(arrays))
    assert ours == theirs


DELAYED = {
    "four": task(),
    "float32": task(kind="float32"),
    "momentum": task(momentum=0.9, decay=0.01),
    "vertical": task(vertical=True),
    "3-1": task((2,), replicas=(3, 1)),
    "1-2-1": task((2, 4), replicas=(1, 2, 1), momentum=0.9),
    "1-1-2, vertical": task((2, 4), replicas=(1, 1, 2), vertical=True),
    "fewer batches than stages": task(steps=2),
}
NORMED = task((2,), replicas=(3, 1), make=make_normed)
DROPPING = task((1,), replicas=(2, 2), make=make_dropping)
FLUSHED = {
    "1f1b": {},
    "gpipe": {"schedule": "gpipe"},
    "naive": {"schedule": "naive", "micro": 1},
    "many": {"micro": 16},
    "2-2": {"cuts": (4,), "replicas": (2, 2), "micro": 7},
    "4": {"cuts": (), "replicas": (4,), "micro": 3},
}
GRADIENTS = {name: task(kernel="gradient", **one) for name, one in FLUSHED.items()}
EVALUATED = {
    name: task(kernel="evaluate", labels=True, **one) for name, one in FLUSHED.items()
}
STEPPED = {
    name: task(momentum=0.9, **{"schedule": "gpipe", **one})
    for name, one in FLUSHED.items()
}
ALL = [*DELAYED.values(), *GRADIENTS.values(), *EVALUATED.values(), *STEPPED.values()]
ALL += [NORMED, DROPPING, DROPPING]


@pytest.fixture(scope="module")
def answers() -> list[Any]:
    return run_ranks(do_all, 4, ALL, limit_s=120)[0]


def find(answers: list[Any], wanted: Task) -> dict[str, Any]:
    answer: dict[str, Any] = answers[ALL.index(wanted)][0]
    return answer


@pytest.mark.parametrize("name", DELAYED)
def test_final_weights_are_those_of_the_delayed_rule(answers: list[Any], name: str):
    found = find(answers, DELAYED[name])["tensors"]
    assert same(found, run_delayed(DELAYED[name]))


@pytest.mark.parametrize("name", DELAYED)
def test_which_are_not_those_of_plain_steps(answers: list[Any], name: str):
    found = find(answers, DELAYED[name])["tensors"]
    assert not same(found, run_delayed(DELAYED[name], synchronous=True))


def test_vertical_sync_is_another_rule(answers: list[Any]):
    one, other = (find(answers, DELAYED[name]) for name in ("four", "vertical"))
    assert not same(one["tensors"], other["tensors"])


def test_running_values_follow_the_forwards(answers: list[Any]):
    found, serial = find(answers, NORMED), run_delayed(NORMED)
    assert same(found["tensors"] | found["buffers"], serial)


def test_stages_hold_no_more_batches_than_are_behind_them(answers: list[Any]):
    spans = answers[ALL.index(DELAYED["four"])][1]
    held, most = [0] * 4, [0] * 4
    for one in sorted(spans, key=lambda span: span.end_s):
        held[one.stage] += {"F": 1, "B": -1}.get(one.kind, 0)
        most[one.stage] = max(most[one.stage], held[one.stage])
    assert most == [4, 3, 2, 1]
    assert 0 < measure_utilisation(spans) < 1


def test_what_draws_draws_the_same_again(answers: list[Any]):
    (one, _), (other, _) = answers[-2:]
    assert same(one["tensors"], other["tensors"])


@pytest.mark.parametrize("name", FLUSHED)
def test_a_gradient_is_the_kernels(answers: list[Any], name: str):
    wanted = GRADIENTS[name]
    theirs = torch_models.gradient(wanted.job())
    ours = find(answers, wanted)
    for one, array in theirs["tensors"].items():
        np.testing.assert_allclose(ours["tensors"][one], array, rtol=1e-12, atol=1e-12)
    assert ours["loss_sum"] == pytest.approx(theirs["loss_sum"], rel=1e-13)
    assert ours["correct"] == theirs["correct"]


@pytest.mark.parametrize("name", FLUSHED)
def test_an_evaluation_is_the_kernels(answers: list[Any], name: str):
    wanted = EVALUATED[name]
    ours, theirs = find(answers, wanted), torch_models.evaluate(wanted.job())
    assert same(ours.pop("tensors"), theirs.pop("tensors"))
    assert ours.pop("loss_sum") == pytest.approx(theirs.pop("loss_sum"), rel=1e-13)
    assert ours == theirs


@pytest.mark.parametrize("name", FLUSHED)
def test_flushed_steps_are_the_kernels(answers: list[Any], name: str):
    wanted = STEPPED[name]
    theirs, ours = torch_models.local_steps(wanted.job()), find(answers, wanted)
    for one, array in theirs["tensors"].items():
        np.testing.assert_allclose(ours["tensors"][one], array, rtol=1e-10, atol=1e-10)
    assert ours["samples"] == theirs["samples"]


# Deaths --------------------------------------------------------------------------------


def do_saved(rank: int, size: int, wanted: Task, folder: Path) -> Any:
    """Return what is found; or write down how somebody was missed, and end him."""
    limited = dist.new_group(timeout=timedelta(seconds=3))
    links = GroupLinks(rank, size, limited, folder)
    pipeline = Pipeline(wanted.cuts, **dict(wanted.options))
    try:
        answer = pipeline.execute(wanted.kernel, wanted.job(), links)
    except RuntimeError as error:
        assert "gloo" in str(error)  # by which a cell knows that a link broke
        (folder / f"missed{rank}").write_text(str(error))
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((folder / "mark").read_text()), signal.SIGKILL)
        return None
    return answer, pipeline.spans


def kill_and_go_on(folder: Path, stage: int, phase: str, at: int, **given: Any) -> None:
    halt = partial(
        make_halting, stage=stage, phase=phase, at=at, number=signal.SIGKILL,
        mark=folder / "mark",
    )  # fmt: skip
    wanted = task(make=halt, every=5, momentum=0.9, steps=40, **given)
    with pytest.raises(AssertionError, match=f"{stage}: 'died or hung'"):
        run_ranks(do_saved, 4, wanted, folder, limit_s=30)
    answer, spans = run_ranks(do_saved, 4, wanted, folder, limit_s=30)[0]
    assert same(answer["tensors"], run_delayed(wanted))
    done = min(one.batch for one in spans if one.kind == "F")
    assert done % 5 == 0
    assert done >= at - 4 - 5  # nothing older than a save and what was in flight
    assert answer["samples"] == torch_models.local_steps(wanted.job())["samples"]


def test_a_killed_stage_loses_nothing(tmp_path: Path):
    kill_and_go_on(tmp_path, 1, "B", 23)


@pytest.mark.slow
@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize(("phase", "at"), [("F", 0), ("B", 5), ("F", 6), ("B", 38)])
def test_wherever_it_is_killed(tmp_path: Path, stage: int, phase: str, at: int):
    kill_and_go_on(tmp_path, stage, phase, at)


def lose_one(folder: Path, number: int) -> list[str]:
    """Let the third stage get a signal; return what the others say of it."""
    halt = partial(
        make_halting, stage=2, phase="F", at=6, number=number, mark=folder / "mark"
    )
    with pytest.raises(AssertionError) as caught:
        run_ranks(do_saved, 4, task(make=halt, steps=40), folder, limit_s=30)
    assert caught.value.args[0] == {2: "died or hung"}
    return [one.read_text() for one in folder.glob("missed*")]


def test_a_dead_neighbour_is_missed_at_once(tmp_path: Path):
    missed = lose_one(tmp_path, signal.SIGKILL)
    assert len(missed) == 3
    assert not any("Timed out" in one for one in missed)


@pytest.mark.slow
def test_a_stopped_neighbour_is_missed_after_the_limit(tmp_path: Path):
    missed = lose_one(tmp_path, signal.SIGSTOP)
    assert len(missed) == 3
    assert any("Timed out waiting 3000ms" in one for one in missed)


# What is refused ------------------------------------------------------------------------


class Own(nn.Sequential):
    """A chain with a way of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def tied() -> nn.Sequential:
    one, other = nn.Linear(3, 3), nn.Linear(3, 3)
    other.weight = one.weight
    return nn.Sequential(one, other)


def twice() -> nn.Sequential:
    one = nn.Linear(3, 3)
    return nn.Sequential(one, nn.Tanh(), one)


@pytest.mark.parametrize("make", [Own, tied, twice, lambda: nn.Linear(3, 3)])
def test_what_is_no_chain_of_its_own_layers_is_not_cut(make: Any):
    with pytest.raises(UsageError, match="STO-T001"):
        cut(make(), (1,))


def test_a_weight_shared_within_a_stage_is_fine():
    assert [len(stage) for stage in cut(tied().append(nn.Tanh()), (2,))] == [2, 1]


@pytest.mark.parametrize("cuts", [(0,), (2, 2), (3, 2), (8,), (-1,)])
def test_cuts_are_between_layers(cuts: tuple[int, ...]):
    with pytest.raises(UsageError, match="STO-T040"):
        cut(make_model(), cuts)


def test_stages_keep_the_models_names():
    model = make_model()
    names = [name for part in cut(model, FOUR) for name, _ in part.named_parameters()]
    assert names == [name for name, _ in model.named_parameters()]


@pytest.mark.parametrize(
    "options", [{"replicas": (1,)}, {"micro": 0}, {"every": -1}, {"replicas": (1, 0)}]
)
def test_settings_that_make_no_pipeline_are_refused(options: dict[str, Any]):
    with pytest.raises(UsageError, match="STO-T040"):
        Pipeline((2,), **options)


@pytest.mark.parametrize(
    ("layout", "kernel"), [(Pipeline((2,)), "gradient"), (Pipeline(), "another")]
)
def test_other_members_or_kernels_are_refused(layout: Pipeline, kernel: str):
    with pytest.raises(UsageError, match="STO-T040"):
        layout.execute(kernel, task().job(), GroupLinks(0, 1, None))


def make_whole(_: str) -> nn.Sequential:
    """Return a model with whole numbers between its layers."""
    return nn.Sequential(nn.Linear(6, 3).double(), Rounded(), nn.Embedding(9, 3))


def make_ragged(_: str) -> nn.Sequential:
    """Return a model between whose layers shapes hang on the numbers."""
    return nn.Sequential(nn.Linear(6, 6).double(), Ragged(), Summed())


class Rounded(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.round().abs().long()


class Ragged(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, : 1 + int(x[0, 0] > 0)]


class Summed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1, keepdim=True).expand(-1, 3)


@pytest.mark.parametrize(("make", "at"), [(make_whole, 2), (make_ragged, 2)])
def test_what_cannot_go_between_stages_is_refused(make: Any, at: int):
    with pytest.raises(AssertionError, match=r"0: .UsageError: .*STO-T001"):
        run_ranks(do_all, 2, [task((at,), make=make)])


def test_saves_need_a_folder():
    job, links = task(()).job(), GroupLinks(0, 1, None)
    with pytest.raises(UsageError, match="STO-T040"):
        Pipeline(every=5).execute("local_steps", job, links)


def test_a_layout_travels_as_plain_values():
    layout = Pipeline((2, 4), (1, 2, 1), micro=3, every=10)
    assert msgspec.json.decode(msgspec.json.encode(layout), type=Pipeline) == layout
