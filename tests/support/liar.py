"""A volunteer whose answers have wrong forms, one kind after the other, for the tests.

    python -m tests.support.liar --project URL --key KEY --state DIR --root FILE

What it computes is true; what it sends is not. Its headers stay true, so only whoever looks
into values finds it out. Nothing in the product imports this module.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import Instance, Tensor, from_node, to_node
from stoilo.executor.slot.executor import Executor
from stoilo.executor.verifier.workunit import parse_result, render_result
from stoilo.executor.volunteer.main import main

if TYPE_CHECKING:
    from stoilo.executor.verifier.workunit import Work

__all__ = ["ENCODED_LIES", "LIES", "OTHERS", "Liar", "lie_about"]

PICKLE = b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R."
TWO = skeleton.encode({"a": 1, "b": 2})
Answer = dict[str, Any]


def _arrays(value: Answer, change: Callable[[Any], object]) -> Answer:
    tensors = {name: change(array) for name, array in value["tensors"].items()}
    return {**value, "tensors": tensors}


LIES: dict[str, Callable[[Answer], object]] = {
    "nothing": lambda _: None,
    "list": lambda value: [value],
    "missing field": lambda value: {k: value[k] for k in value if k != "correct"},
    "further field": lambda value: {**value, "stats": 1},
    "no tensor": lambda value: {**value, "tensors": {}},
    "further tensor": lambda value: {
        **value,
        "tensors": {**value["tensors"], "v": np.ones(1)},
    },
    "other shape": lambda value: _arrays(value, lambda a: a[..., None]),
    "other type": lambda value: _arrays(value, lambda a: a.astype(np.float16)),
    "lists": lambda value: _arrays(value, lambda a: a.tolist()),
    "texts": lambda value: _arrays(value, lambda a: a.astype("U8")),
    "NaN": lambda value: _arrays(value, lambda a: np.full_like(a, np.nan)),
    "infinity": lambda value: _arrays(value, lambda a: np.full_like(a, np.inf)),
    "loss of NaN": lambda value: {**value, "loss_sum": float("nan")},
    "loss as text": lambda value: {**value, "loss_sum": "NaN"},
    "loss beyond every measure": lambda value: {**value, "loss_sum": 1.7e308},
    "more right than samples": lambda value: {**value, "correct": 1 << 40},
}
"""Wrong values by name, each made of a true one."""

OTHERS: dict[str, Callable[[Answer], object]] = {
    "truth": lambda value: value,
    "rounding": lambda value: _arrays(value, lambda a: a * (1.0 + 1e-6)),
    "another version": lambda value: {**value, "version": value["version"] + 1},
    "ten times": lambda value: _arrays(value, lambda a: -10.0 * a),
}
"""Values of a right form by name: what only a comparison or the trainer finds out."""


def _replaced(value: Answer, node: object) -> bytes:
    tensors = dict.fromkeys(value["tensors"], node)
    return skeleton.encode({**to_node({**value, "tensors": {}}), "tensors": tensors})


ENCODED_LIES: dict[str, Callable[[Answer], bytes]] = {
    "a pickle": lambda _: PICKLE,
    "cut": lambda value: skeleton.encode(to_node(value))[:-3],
    "endless": lambda value: skeleton.encode(to_node(value)) + bytes(100),
    "huge length": lambda _: TWO.replace(b"\x02\0\0\0s", b"\xff\xff\xff\x7fs"),
    "key that comes twice": lambda _: TWO.replace(b"b", b"a"),
    "instance of no class": lambda value: _replaced(value, Instance("Root", {"x": 1})),
    "tensor of torch": lambda value: _replaced(
        value, Tensor("float32", (1,), bytes(4))
    ),
}
"""Wrong bytes by name, each made of a true value."""


def lie_about(encoded: bytes, name: str) -> bytes:
    """Return what the liar sends in place of an encoded true value."""
    value = from_node(skeleton.decode(encoded))
    if name in ENCODED_LIES:
        return ENCODED_LIES[name](value)
    return skeleton.encode(to_node((LIES | OTHERS)[name](value)))


class Liar(Executor):
    """An executor that sends, turn by turn, the named lies about what another computed.

    Args:
        honest: the other one.
        names: of `LIES`, `ENCODED_LIES` or `OTHERS`.
    """

    def __init__(self, honest: Executor, names: Sequence[str]) -> None:
        self._honest = honest
        self._names = itertools.cycle(names)

    def execute(self, work: Work) -> bytes:
        """Return a result file with a true header and a false value."""
        file = parse_result(self._honest.execute(work))
        frame = skeleton.decode(file.frame)
        if not isinstance(frame, dict) or not isinstance(frame.get("value"), bytes):
            return render_result(file.header, file.frame, file.output)
        lie = lie_about(frame["value"], next(self._names))
        frame = skeleton.encode(frame | {"value": lie})
        return render_result(file.header, frame, file.output)

    def cancel(self, result: str) -> None:
        """End the run of a copy."""
        self._honest.cancel(result)

    def close(self) -> None:
        """End the honest one."""
        self._honest.close()


def wrap_executor(honest: Executor) -> Executor:
    """Return a liar of the lies that the environment names, of all without."""
    names = os.environ.get("STOILO_LIES", "")
    return Liar(honest, names.split(",") if names else [*LIES, *ENCODED_LIES])


if __name__ == "__main__":
    sys.exit(main(wrap=wrap_executor))
