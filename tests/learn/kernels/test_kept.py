"""The release's kernels in zygotes: the answers of compiling, and of those texts alone."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from stoilo.client.capture import capture_task
from stoilo.core.types import RunStatus
from stoilo.learn.kernels import array_models, kept
from stoilo.policies.levels import load_level
from stoilo.sandbox.language.transformer import compile_source
from stoilo.sandbox.process import own_checks, task_job
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail

LEVEL = load_level("numeric")


def make_request(name, more=""):
    """Return the run of a logistic kernel, its text changed by what comes after it."""
    rng = np.random.default_rng(1)
    captured = capture_task(
        getattr(array_models, name),
        {
            "function": array_models.make_logistic_loss(),
            "parameters": {"theta": rng.normal(size=5)},
            "data": {"x": rng.normal(size=(9, 5)), "y": np.arange(9) % 2},
            "rows": None,
            "settings": {"steps": 3, "batch": 2, "rate": 0.1, "seed": 4},
            "version": 2,
        },
    )
    return TaskRequest(
        captured.task_module + more, captured.entry, captured.arguments, seed="00" * 32
    )


@pytest.fixture(scope="module")
def jail():
    with Jail(LEVEL, TASK_JOB) as running:
        yield running


def test_committed_texts_are_what_capture_writes():
    committed = Path(task_job.__file__).with_name(task_job.KEPT_FILE)
    assert committed.read_text("utf-8") == kept.render(), (
        "out of date: run python -m stoilo.learn.kernels.kept"
    )


def test_committed_checks_are_what_capture_writes():
    committed = Path(own_checks.__file__).with_name(own_checks.CHECKS_FILE)
    assert committed.read_text("utf-8") == kept.render_checks(), (
        "out of date: run python -m stoilo.learn.kernels.kept"
    )


def test_kept_code_is_that_of_the_text_with_its_guards():
    held = task_job.compile_kept(LEVEL)
    assert make_request("gradient").source in held
    for text, code in held.items():
        assert code == compile_source(text, LEVEL)
        assert code != compile(text, code.co_filename, "exec")  # the control: no guards


def test_level_without_torch_keeps_no_kernel_of_it():
    held = task_job.compile_kept(LEVEL)
    assert held
    assert not any("torch" in text for text in held)


def test_level_without_arrays_keeps_nothing():
    assert task_job.compile_kept(load_level("pure")) == {}


@pytest.mark.parametrize("name", array_models.__all__)
def test_kept_kernel_answers_bit_for_bit_as_a_compiled_one(jail, name):
    limits = LEVEL.default_limits()
    one = run_task(jail, make_request(name), limits)
    other = run_task(jail, make_request(name, "\n"), limits)
    assert one.status is other.status is RunStatus.OK, (one, other)
    assert one.value == other.value


def test_kept_text_with_a_hostile_line_is_refused(jail):
    hostile = make_request("gradient", "gradient.__globals__\n")
    outcome = run_task(jail, hostile, LEVEL.default_limits())
    assert outcome.status is RunStatus.REFUSED


def test_level_of_one_source_without_math_keeps_nothing():
    modules = {name: rule for name, rule in LEVEL.modules.items() if name != "math"}
    assert task_job.compile_kept(msgspec.structs.replace(LEVEL, modules=modules)) == {}
