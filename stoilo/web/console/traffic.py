"""``/console/traffic``: the project's own nodes, by their dispatcher's record. Read only.

Imported when it is first asked for: numpy comes with what reads the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import StoiloError
from stoilo.learn.store.place import read_place
from stoilo.learn.traffic.record import SHOWN, read_record
from stoilo.learn.traffic.topology import FAULTS, list_nodes, list_trees

if TYPE_CHECKING:
    from starlette.responses import Response

    from stoilo.learn.traffic.record import Record
    from stoilo.learn.traffic.topology import Step, Tree
    from stoilo.web.console.asking import Asked

NEWEST: Final = 24  # trees, and faults, of one page
SHADES: Final = 4
WIDTH, LABEL, ROW = 640, 150, 24  # px: of a drawing, of its names' column, of a node
_END: Final = WIDTH - ROW  # where the last receipt is


@dataclass(frozen=True, slots=True)
class Line:
    """A node's line of a drawing, px."""

    name: str
    indent: int
    y: int
    x: int  # where it had it, or its part was with the other
    path: str  # of the transfer, in SVG's words; empty: a top
    shade: int  # by the rate


def show(asked: Asked, dispatcher: str) -> Response:
    """Answer for the page; `dispatcher`: its connection file, empty: there is none."""
    record, problem = None, None
    try:
        if dispatcher:
            record = read_record(read_place(Path(dispatcher)), SHOWN)
    except StoiloError as error:
        problem = error
    if record is None:
        return asked.render("console/traffic.html", record=None, problem=problem)
    trees, name = list_trees(record.events)[::-1], asked.query("tree")
    tree = next((one for one in trees if one.name == name), trees[0] if trees else None)
    return asked.render(
        "console/traffic.html",
        record=record,
        problem=None,
        nodes=list_nodes(record),
        rates=shade_rates(record),
        tree=tree,
        lines=draw(tree) if tree else [],
        trees=trees[:NEWEST],
        faults=[e for e in record.events[::-1] if e.what in FAULTS][:NEWEST],
    )


def shade_rates(record: Record) -> dict[str, list[tuple[str, float, int]]]:
    """Return sender → receivers, each with rate, bytes/s, and shade; 0 is unknown."""
    known = {(sender, receiver): rate for sender, receiver, rate in record.rates}
    names = sorted({*record.nodes, *(node for pair in known for node in pair)})
    fastest = max(known.values(), default=0.0)

    def find(sender: str, receiver: str) -> tuple[str, float, int]:
        rate = known.get((sender, receiver), 0.0)
        return receiver, rate, shade(rate, fastest)

    return {sender: [find(sender, one) for one in names] for sender in names}


def shade(rate: float, fastest: float) -> int:
    """Return 1 to `SHADES`, the last for the fastest; 0 for none."""
    return min(SHADES, 1 + int(SHADES * rate / fastest)) if rate else 0


def draw(tree: Tree) -> list[Line]:
    """Lay a tree out: nodes below each other, time from left to right."""
    rows = {step.node: ROW * (index + 1) for index, step in enumerate(tree.steps)}
    fastest = max(step.rate for step in tree.steps)

    def place(at: float) -> int:
        return LABEL + round((_END - LABEL) * max(0.0, at) / (tree.last_s or 1.0))

    def lead(step: Step) -> str:
        y, other = rows[step.node], rows[step.partner]
        begin, end = place(step.at - step.seconds), place(step.at)
        # A version comes from the other's line, a part goes to it.
        if tree.what == "version":
            return f"M{begin} {other}V{y}H{end}"
        return f"M{begin} {y}H{end}V{other}"

    return [
        Line(
            step.node,
            8 * min(step.depth, 6),
            rows[step.node],
            place(step.at),
            lead(step) if step.partner else "",
            shade(step.rate, fastest),
        )
        for step in tree.steps
    ]
