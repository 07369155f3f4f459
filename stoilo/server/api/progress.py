"""What trainers say of their trainings, and what the server itself knows of a label's tasks.

A trainer's numbers are its owner's own words: bounded, kept, shown to that owner alone, and
believed by nothing. They are not in the audit log, as they decide nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import bindparam, delete, func, literal, select, union_all

from stoilo.core.errors import UsageError
from stoilo.core.rpc import progress_pb2 as pb
from stoilo.core.rpc import progress_pb2_grpc
from stoilo.core.types import BOUNDS, name_of_label
from stoilo.server.admission import tokens
from stoilo.server.admission.quotas import RateMeter
from stoilo.server.api.service import Calls, served
from stoilo.server.db import rows, schema
from stoilo.server.db.bulk import insert_many
from stoilo.server.db.records import workunit_name
from stoilo.server.engines.interface import Cost, Costs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import ColumnElement, CompoundSelect

    from stoilo.server.db.records import Owner, TaskRow
    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import Engine

MOST_SENT: Final = 256  # points of one report
MOST_POINTS: Final = 512  # kept of one training
MOST_TRAININGS: Final = 50  # kept of an account, those told of last
MOST_TASKS: Final = 1000  # the newest of an account, among which a label's are sought
REPORTS_PER_HOUR: Final = (
    20_000  # of an account: 27 trainings at a trainer's usual pace
)
MOST_COUNT: Final = 2**63 - 1


class Point(msgspec.Struct, frozen=True, array_like=True):
    """What one version came to; NaN where it has no such loss."""

    version: int
    loss: float
    held_out: float
    answers: int  # that made it, and those versions that were thinned out before it


class Training(msgspec.Struct, frozen=True):
    """A training in its trainer's words; times in s since 1970 by the server's clock."""

    points: tuple[Point, ...]  # by version
    began_at: int  # the first report
    first_version: int  # of the first report's last point
    updated_at: int
    refused: int = 0
    failed: int = 0
    stragglers: int = 0
    ended: bool = False

    @property
    def versions_per_hour(self) -> float:
        """The pace since the first report; 0 while there is one alone."""
        took_s = self.updated_at - self.began_at
        made = self.points[-1].version - self.first_version if self.points else 0
        return 3600.0 * made / took_s if took_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Known:
    """What there is of a label for its owner."""

    tasks: Sequence[TaskRow]  # newest first
    training: Training | None  # None: no trainer has said anything
    cost: Cost | None  # None: the engine does not count it


def thin(points: Sequence[Point], most: int) -> tuple[Point, ...]:
    """Return at most so many points, evenly spread over the versions, the last among them."""
    if len(points) <= most:
        return tuple(points)
    first, last = points[0].version, points[-1].version
    found: dict[int, Point] = {}
    for one in points:
        place = (one.version - first) * (most - 1) // (last - first)
        before = found[place].answers if place in found else 0
        found[place] = msgspec.structs.replace(one, answers=one.answers + before)
    return tuple(found.values())


def add_report(
    kept: Training | None, asked: pb.ReportProgressRequest, now: int
) -> Training:
    """Return a training after a (checked) report; a new one takes an old one's place."""
    sent = {
        one.version: Point(one.version, one.loss, one.held_out, one.answers)
        for one in asked.points
    }
    if kept and kept.points and sent and min(sent) <= kept.points[0].version:
        kept = None
    known = {one.version: one for one in kept.points} if kept else {}
    points = tuple((known | sent)[one] for one in sorted(known | sent))
    return Training(
        points=thin(points, MOST_POINTS),
        began_at=kept.began_at if kept else now,
        first_version=kept.first_version if kept else max(sent, default=0),
        updated_at=now,
        refused=asked.refused,
        failed=asked.failed,
        stragglers=asked.stragglers,
        ended=asked.ended,
    )


def check_report(asked: pb.ReportProgressRequest) -> None:
    """Raise ``STO-R010`` for a report out of bounds."""
    counts = (asked.refused, asked.failed, asked.stragglers)
    label = asked.label
    if not 1 <= len(label) <= BOUNDS.name_chars or not label.isprintable():
        raise UsageError("STO-R010", "a report names a label of 1 to 128 characters")
    if len(asked.points) > MOST_SENT:
        raise UsageError("STO-R010", f"a report has up to {MOST_SENT} points")
    if max(*counts, *(one.version for one in asked.points)) > MOST_COUNT:
        raise UsageError("STO-R010", "a number of the report is too large")


class ProgressService(Calls, progress_pb2_grpc.ProgressServiceServicer):
    """Takes reports, and reads what an owner's pages show; blocking, thread-safe."""

    _check = staticmethod(tokens.check_permission)
    ReportProgress = served("ReportProgress")

    def __init__(self, store: Store, engine: Engine, clock: Callable[[], int]) -> None:
        self._engine = engine
        self._meter = RateMeter("STO-R005", "reports of progress")
        super().__init__(store, clock, {"ReportProgress": self.report})

    def report(
        self, owner: Owner, asked: pb.ReportProgressRequest
    ) -> pb.ReportProgressResponse:
        """Keep a report (untrusted); raises ``STO-R010``, ``STO-R005`` for too many."""
        check_report(asked)
        self._meter.check(owner.account_id, REPORTS_PER_HOUR)
        table, mine = schema.training, _mine(owner, asked.label)
        with self.store.write() as connection:
            body = connection.scalar(select(table.c.body).where(mine))
            made = add_report(_decode(body), asked, self.clock())
            values = {"account_id": owner.account_id, "label": asked.label}
            values |= {"body": msgspec.msgpack.encode(made)}
            connection.execute(delete(table).where(mine))
            insert_many(connection, table, [values | {"updated_at": made.updated_at}])
            newest = table.c.updated_at.desc(), table.c.label
            own = table.c.account_id == owner.account_id
            listed = select(table.c.label).where(own).order_by(*newest)
            old = connection.scalars(listed.offset(MOST_TRAININGS).limit(1)).all()
            for label in old:  # one comes at a time
                connection.execute(delete(table).where(_mine(owner, label)))
        return pb.ReportProgressResponse(points=len(made.points))

    def mark(self, owner: Owner, name: str) -> frozenset[object]:
        """Return what is another one once a task or report of the owner's has changed."""
        with self.store.read() as connection:
            asked = {"account": owner.account_id, "label": name}
            return frozenset(map(tuple, connection.execute(_marks(), asked)))

    def read(self, owner: Owner, name: str) -> Known:
        """Return what there is of a name (untrusted); nothing of anybody else's."""
        said = select(schema.training.c.body).where(_mine(owner, name))
        with self.store.read() as connection:
            found = rows.list_tasks(connection, owner.account_id, (), MOST_TASKS)
            training = _decode(connection.scalar(said))
        tasks = [one for one in found if name_of_label(one.spec.label) == name]
        names = [workunit_name(one.task_id, one.attempt) for one in tasks]
        engine = self._engine
        cost = engine.cost(names) if isinstance(engine, Costs) else None
        return Known(tasks, training, cost)


@cache  # building it costs more than asking it, and who looks asks often
def _marks() -> CompoundSelect[Any]:
    task, training = schema.task, schema.training
    mine = task.c.account_id == bindparam("account")
    said = training.c.account_id == bindparam("account")
    newest = func.max(task.c.created_at), func.max(task.c.finished_at)
    states = select(task.c.state, func.count(), *newest).where(mine)
    told = select(literal(""), literal(0), training.c.updated_at, literal(0))
    labelled = training.c.label == bindparam("label")
    return union_all(states.group_by(task.c.state), told.where(said, labelled))


def _mine(owner: Owner, label: str) -> ColumnElement[bool]:
    table = schema.training
    return (table.c.account_id == owner.account_id) & (table.c.label == label)


def _decode(body: bytes | None) -> Training | None:
    return msgspec.msgpack.decode(body, type=Training) if body else None
