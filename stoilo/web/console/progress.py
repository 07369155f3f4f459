"""Maps and trainings: what became of their tasks, and what their trainer says of them."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import UsageError
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import BOUNDS, TaskState
from stoilo.server.api.progress import thin
from stoilo.web.console.live import Part, answer_live
from stoilo.web.console.research import group_by_label
from stoilo.web.language import gettext

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import jinja2
    from starlette.responses import Response

    from stoilo.server.api.progress import Point
    from stoilo.server.app.task_server import TaskServer
    from stoilo.server.db.records import Owner, TaskRow
    from stoilo.web.console.asking import Asked
    from stoilo.web.console.live import Parts

AGES_S: Final = 15  # how old what grows with time alone may be on a page, s
NEWEST: Final = 8  # tasks that a label's page leads to
MOST_LATE: Final = 10  # shown of those that are out too long
LATE: Final = 2.0  # so many times as long as the median of those that ended
ON_CURVE: Final = 200  # points
IN_TABLE: Final = 20  # points
WIDE, HIGH = 600, 200  # of the drawing


@dataclass(frozen=True, slots=True)
class Summary:
    """What became of a label's tasks; times in s."""

    states: Counter[TaskState]
    items: int  # calls of maps among them
    began_at: int  # when the oldest was made, s since 1970
    median_s: float  # from submission to a result; 0: none has one
    slowest_s: int
    late: Sequence[TaskRow]  # open for much longer than that, oldest first
    late_s: Sequence[int]  # for how long

    @property
    def ended(self) -> int:
        """How many are final."""
        return sum(count for state, count in self.states.items() if state.final)


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves in a drawing of `WIDE` times `HIGH`."""

    lines: Sequence[tuple[str, str]]  # name, points as SVG writes them
    low: float
    high: float
    first: int  # version
    last: int


class Progress:
    """The handlers of one server; they block."""

    def __init__(
        self,
        tasks: TaskServer,
        parts: Parts,
        load: Callable[[str], jinja2.Template],
        clock: Callable[[], int],
    ) -> None:
        self._tasks, self._parts, self._load = tasks, parts, load
        self._service, self._clock = tasks.progress_service, clock

    def labels(self, asked: Asked) -> Response:
        """``/console/labels``: maps and trainings by label."""
        owner = asked.visitor.owner
        part = self._parts.find(
            (owner.account_id, "labels"),
            partial(self._service.mark, owner, ""),
            partial(self._labels, owner),
        )
        return answer_live(asked, part, "console/labels.html", dict)

    def _labels(self, owner: Owner) -> Part:
        found = self._tasks.desk.list_tasks(owner, pb.ListTasksRequest()).tasks
        labels = group_by_label(found)
        text = self._load("console/labels_part.html").render(labels=labels)
        ended = sum(one.ended for one in labels)
        return Part(text, _say(ended, len(found)), goes_on=True)

    def label(self, asked: Asked) -> Response:
        """``/console/label/NAME``: one map or training (NAME untrusted)."""
        owner, name = asked.visitor.owner, str(asked.request.path_params["name"])
        if len(name) > BOUNDS.name_chars or not (name.isprintable() or not name):
            raise UsageError("STO-R010", "the label is too long or no text")
        part = self._parts.find(
            (owner.account_id, "label", name),
            lambda: (self._service.mark(owner, name), self._clock() // AGES_S),
            partial(self._label, owner, name),
        )
        return answer_live(asked, part, "console/label.html", lambda: {"name": name})

    def _label(self, owner: Owner, name: str) -> Part:
        known = self._service.read(owner, name)
        summary = sum_up(known.tasks, self._clock())
        poll = self._tasks.desk.poll
        late = [
            (one.task_id, age, poll(owner, one.task_id).copies)
            for one, age in zip(summary.late, summary.late_s, strict=True)
        ]
        said = known.training
        points = said.points if said else ()
        text = self._load("console/label_part.html").render(
            name=name,
            summary=summary,
            cost=known.cost,
            newest=known.tasks[:NEWEST],
            late=late,
            training=said,
            accepted=sum(one.answers for one in points),
            chart=draw(points),
            rows=thin(points, IN_TABLE),
        )
        open_ones = len(known.tasks) - summary.ended
        goes_on = open_ones > 0 or (said is not None and not said.ended)
        return Part(text, _say(summary.ended, len(known.tasks)), goes_on)


def _say(ended: int, total: int) -> str:
    """Return in tenths what has ended: not every single one is worth a word."""
    tenths = 10 * ended // total if total else 0
    if ended == total:
        return gettext("All tasks have ended.")
    return gettext("%(tenths)s0 %% have ended.") % {"tenths": tenths}


def sum_up(tasks: Sequence[TaskRow], now: int) -> Summary:
    """Return what became of tasks (newest first) at `now`, s since 1970. Pure."""
    took = [
        one.finished_at - one.created_at
        for one in tasks
        if one.state is TaskState.SUCCEEDED and one.finished_at is not None
    ]
    median = float(statistics.median(took)) if took else 0.0
    late = [
        one
        for one in tasks[::-1]
        if took and not one.state.final and now - one.created_at > LATE * median
    ][:MOST_LATE]
    return Summary(
        states=Counter(one.state for one in tasks),
        items=sum(one.spec.map_items for one in tasks),
        began_at=tasks[-1].created_at if tasks else 0,
        median_s=median,
        slowest_s=max(took, default=0),
        late=late,
        late_s=[now - one.created_at for one in late],
    )


def draw(points: Sequence[Point]) -> Chart | None:
    """Return the curves of a training's losses, None where there is no curve. Pure."""
    curves = {
        name: [
            (one.version, value)
            for one in thin(points, ON_CURVE)
            if math.isfinite(value := getattr(one, name))
        ]
        for name in ("loss", "held_out")
    }
    drawn = {name: curve for name, curve in curves.items() if len(curve) > 1}
    values = [value for curve in drawn.values() for _, value in curve]
    versions = [version for curve in drawn.values() for version, _ in curve]
    if not values or not math.isfinite(max(values) - min(values)):
        return None
    low, high, first, last = min(values), max(values), min(versions), max(versions)
    across, up = WIDE / (last - first), HIGH / ((high - low) or 1.0)
    lines = [
        (
            name,
            " ".join(
                f"{(version - first) * across:.1f},{HIGH - (value - low) * up:.1f}"
                for version, value in curve
            ),
        )
        for name, curve in drawn.items()
    ]
    return Chart(lines, low, high, first, last)
