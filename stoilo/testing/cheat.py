"""A volunteer that lies, for the demo and the tests: runs the task, changes the value.

    python -m stoilo.testing.cheat --project URL --key KEY --state DIR --root FILE

The header stays true, so only the quorum can find it out. Nothing in the product imports
this module.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stoilo.core.codec import skeleton
from stoilo.core.errors import TrustError
from stoilo.executor.slot.executor import Executor
from stoilo.executor.verifier.workunit import parse_result, render_result
from stoilo.executor.volunteer.main import main

if TYPE_CHECKING:
    from stoilo.core.codec.nodes import Node
    from stoilo.executor.verifier.workunit import Work


def falsify(frame: bytes) -> bytes:
    """Return a task frame with every returned value replaced by a wrong one."""
    try:
        node = skeleton.decode(frame)
    except TrustError:
        return frame
    if isinstance(node, dict) and isinstance(node.get("items"), list):
        items = node["items"]
        return skeleton.encode({"items": [_falsify_item(item) for item in items]})
    return skeleton.encode(_falsify_item(node))


def _falsify_item(node: Node) -> Node:
    """Return one item of a frame with a wrong value."""
    if not isinstance(node, dict) or not isinstance(node.get("value"), bytes):
        return node
    return node | {"value": skeleton.encode(_wrong(skeleton.decode(node["value"])))}


def _wrong(value: Node) -> Node:
    """Return a plausible value of the same kind, but not this one."""
    match value:
        case bool():
            return not value
        case int() | float() | complex():
            return value + 1
        case str():
            return value + "?"
        case list() if value:
            return [_wrong(value[0]), *value[1:]]
        case dict() if value:
            first = next(iter(value))
            return value | {first: _wrong(value[first])}
        case _:
            return 42 if value is None else None


class Cheat(Executor):
    """An executor that falsifies what another one computed."""

    def __init__(self, honest: Executor) -> None:
        self._honest = honest

    def execute(self, work: Work) -> bytes:
        """Return a result file with a true header and a false value."""
        file = parse_result(self._honest.execute(work))
        return render_result(file.header, falsify(file.frame), file.output)

    def cancel(self, result: str) -> None:
        """End the run of a copy."""
        self._honest.cancel(result)

    def close(self) -> None:
        """End the honest one."""
        self._honest.close()


if __name__ == "__main__":
    sys.exit(main(wrap=Cheat))
