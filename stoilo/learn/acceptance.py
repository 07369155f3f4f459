"""What a volunteer's answer must be before a single number of it is used (hostile input).

Known version, exact names, types and shapes, finite entries, the ordered number of samples,
a loss above its least value. Only then it is a `Reply`. The rules themselves are in
`stoilo.learn.kernels.checks`, because a server's validator asks the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stoilo.core.errors import TrustError
from stoilo.learn.kernels import checks
from stoilo.learn.tensors import Form, Tensors
from stoilo.learn.work import Plain, Reply

__all__ = ["Expectation", "check_reply", "refuse_answer", "tensors_expected"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the answer to one order must look like.

    Attributes:
        version: of the snapshot that the order named.
        samples: how many samples it covers.
        tensors: forms of the arrays that the kernel returns.
        buffers: forms of the model's buffers.
        least_loss: least sum of losses that can be, where the loss has a lower bound of 0:
            0; else minus infinity.
        may_lack: names of arrays that may be absent: parameters that have no gradient.
        ray: of how many steps its numbers hold loss and slope.
    """

    version: int
    samples: int
    tensors: Mapping[str, Form]
    buffers: Mapping[str, Form]
    least_loss: float = -math.inf
    may_lack: frozenset[str] = frozenset()
    ray: int = 0

    def plain(self) -> dict[str, object]:
        """Return it as what source can hold: numbers, texts, tuples, dicts."""
        return {
            "version": self.version,
            "samples": self.samples,
            "least_loss": self.least_loss if math.isfinite(self.least_loss) else None,
            "tensors": _plain_forms(self.tensors),
            "buffers": _plain_forms(self.buffers),
            "lacking": tuple(sorted(self.may_lack)),
            "ray": self.ray,
        }

    def validator(
        self, told: Mapping[str, Plain] | None = None
    ) -> Callable[[object], bool]:
        """Return the check for a server: travels as source, runs in its jail.

        It leaves version and samples to the driver: one source for all orders of a run
        is judged by the gate once.

        Args:
            told: how its arrays are encoded; None where they are not.
        """
        least = 0.0 if self.least_loss == 0.0 else None
        alike = {"version": None, "samples": None, "least_loss": least}
        make: Callable[..., Callable[[object], bool]] = checks.make_check
        return make({**self.plain(), **alike}, told)

    def comparator(
        self, told: Mapping[str, Plain] | None = None
    ) -> Callable[[object, object], bool] | None:
        """Return what says, at a server, whether two answers are alike.

        None, which asks for equality, where signs were drawn: a draw turns the last bit
        of one processor into another sign.
        """
        if told is not None and told["codec"] == "ternary":
            return None
        make: Callable[..., Callable[[object, object], bool]] = checks.make_comparator
        return (
            checks.are_alike if told is None else make(_plain_forms(self.tensors), told)
        )


def _plain_forms(forms: Mapping[str, Form]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (form.dtype, form.shape) for name, form in forms.items()}


def check_reply(raw: object, expected: Expectation) -> Reply:
    """Return the reply that `raw` (decoded, otherwise unchecked) holds.

    What may be absent, and is, stays absent; the other arrays come in the model's order.

    Raises:
        TrustError: ``STO-T010`` naming the first thing that is not as expected.
    """
    find_fault: Callable[[object, dict[str, object]], str] = checks.find_fault
    fault = find_fault(raw, expected.plain())
    if fault:
        raise refuse_answer(fault)
    assert isinstance(raw, dict)  # noqa: S101 - it has no fault
    tensors, buffers = raw["tensors"], raw["buffers"]
    return Reply(
        version=expected.version,
        samples=expected.samples,
        loss_sum=raw["loss_sum"],
        tensors={name: tensors[name] for name in expected.tensors if name in tensors},
        buffers={name: buffers[name] for name in expected.buffers},
        correct=raw["correct"],
        numbers=dict(raw["numbers"]),
    )


def refuse_answer(what: str) -> TrustError:
    """Return the error for an answer of which no number may be used."""
    return TrustError("STO-T010", f"a volunteer's answer is not used: {what}")


def tensors_expected(kernel: str, parameters: Tensors) -> Mapping[str, Form]:
    """Return the forms of the arrays that `kernel` returns."""
    if kernel in ("evaluate", "ray"):  # numbers only
        return {}
    return {n: Form(str(a.dtype), a.shape) for n, a in parameters.items()}
