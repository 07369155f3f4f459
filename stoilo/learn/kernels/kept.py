"""The texts of our own kernels as `stoilo.client.capture` writes them, for the release.

A zygote holds their code (`stoilo.sandbox.process.task_job`), so a run of one of them
compiles nothing. ``python -m stoilo.learn.kernels.kept`` writes the file anew; a test says
when it is out of date. What no researcher's code is part of is kept: torch kernels of any
model of torch's own classes, with a loss of those or with ``cross_entropy``, and the logistic
loss of arrays. Another text, be it by one byte, is compiled in the jail like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoilo.client.capture import capture_task
from stoilo.learn.kernels import checks
from stoilo.sandbox.process import own_checks, task_job

__all__ = ["render", "render_checks"]


def render() -> str:
    """Return the file's text: what modules share, once."""
    import torch  # noqa: PLC0415 - a server's clients may have none

    from stoilo.learn.kernels import array_models, torch_models  # noqa: PLC0415

    losses = (torch.nn.CrossEntropyLoss(), torch.nn.functional.cross_entropy)
    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    texts = [
        _capture(torch_models, name, {"model": model, "loss": loss})
        for name in torch_models.__all__
        for loss in losses
    ]
    logistic = {"function": array_models.make_logistic_loss()}
    texts += [_capture(array_models, name, logistic) for name in array_models.__all__]
    return _join(texts)


def render_checks() -> str:
    """Return the text of `own_checks.CHECKS_FILE`: validator modules without their literals."""
    expected, told = {"tensors": {}, "buffers": {}}, {"codec": "compressed"}
    check = checks.make_check(expected, told)
    comparators = (None, checks.are_alike, checks.make_comparator({"w": ()}, told))
    texts = [
        capture_task(_answer, {}, check, alike).validator_module
        for alike in comparators
    ]
    bare = [own_checks.LITERAL.sub(r"\1 = None", text) for text in texts]
    return _join(bare)


def _join(texts: list[str]) -> str:
    """Return what `task_job.read_kept` reads: each top-level piece once."""
    rows = [text.split(task_job.KEPT_JOINT) for text in texts]
    pieces = [*dict.fromkeys(piece for row in rows for piece in row)]
    numbers = {piece: str(number) for number, piece in enumerate(pieces)}
    table = "\n".join(" ".join(numbers[piece] for piece in row) for row in rows)
    return task_job.KEPT_BREAK.join([table, *pieces])


def _answer(kwargs: Mapping[str, object]) -> Mapping[str, object]:
    return kwargs


def _capture(kernels: Any, name: str, constants: Mapping[str, object]) -> str:
    return capture_task(getattr(kernels, name), constants).task_module


if __name__ == "__main__":
    Path(task_job.__file__).with_name(task_job.KEPT_FILE).write_text(render(), "utf-8")
    Path(own_checks.__file__).with_name(own_checks.CHECKS_FILE).write_text(
        render_checks(), "utf-8"
    )
