"""The embedded engine itself as the project of a simulated population.

Nothing of the engine is replaced but its clock and its draws: requests go to its
scheduler, answers through its upload desk, its steps ask a validator that compares bytes.
It is some hundred times slower than the rules alone, and says whether `ruled` tells the
truth.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from bench.simulation.hosts import HostKind
from bench.simulation.project import Assignment, Ending
from stoilo.core.boinc.messages import ReportedResult, ResultState, SchedulerRequest
from stoilo.core.digests import content_digest
from stoilo.core.errors import DeniedError
from stoilo.server.engines.embedded.accounts.quotas import RULES, Quota, store_quota
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import Database
from stoilo.server.engines.embedded.engine import EmbeddedEngine, EngineOptions
from stoilo.server.engines.embedded.workunits.uploads import UploadHead
from stoilo.server.engines.interface import (
    Comparison,
    PairVerdict,
    ResultCheck,
    ResultVerdict,
)
from stoilo.server.engines.workunits import Replication, WorkunitFile, WorkunitSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bench.simulation.hosts import Host
    from bench.simulation.project import Report
    from bench.simulation.scenario import Policy
    from stoilo.core.boinc.messages import SchedulerReply
    from stoilo.server.engines.embedded.accounts.accounts import Account
    from stoilo.server.engines.interface import ReceivedResult, WorkunitOutcome


__all__ = ["EngineProject"]

APP: Final = "pure"
BASE: Final = "http://population.invalid/"
INPUT: Final = b"input"
RESULT_BYTES: Final = 1000
FAILED_EXIT: Final = 195


class EngineProject:
    """An embedded engine under a directory of its own; see `project.Project`.

    Args:
        directory: for its database and files.
        policy: of every workunit.
        life_s: time that a workunit has, s.
        draw: uniform in [0, 1).
    """

    def __init__(
        self, directory: Path, policy: Policy, life_s: int, draw: Callable[[], float]
    ) -> None:
        self._policy = policy
        self._life_s = life_s
        self._now = 0
        self._engine = EmbeddedEngine(
            directory,
            options=EngineOptions(
                spot_check_rate=policy.spot_check_rate,
                draw=draw,
                lots=lambda: 0.0,  # in the order of those that wait
            ),
            clock=lambda: self._now,
        )
        # A connection of our own, to write what hosts begin with and to read the end.
        self._database = Database(f"sqlite:///{directory / 'engine.sqlite'}")
        self._accounts: dict[int, Account] = {}
        self._rows: dict[int, int] = {}  # host row by our number
        self._calls = 0
        self._uploads: dict[str, tuple[str, str]] = {}  # token and name by copy
        self._ended: list[Ending] = []

    def close(self) -> None:
        """Close the engine and its database."""
        self._engine.close()
        self._database.close()

    def create(self, workunits: range, now: int) -> None:
        """Make workunits of these numbers."""
        self._now = now
        file = WorkunitFile("arguments", content_digest(INPUT), INPUT)
        self._engine.create_workunits(
            [
                WorkunitSpec(
                    name=str(number),
                    app=APP,
                    files=(file,),
                    redundancy=self._policy.redundancy,
                    not_after=now + self._life_s,
                    result_max_bytes=RESULT_BYTES,
                    replication=Replication(adaptive=self._policy.adaptive),
                )
                for number in workunits
            ]
        )

    def call(
        self, host: Host, reports: Sequence[Report], room: int, now: int
    ) -> tuple[Assignment, ...]:
        """Take a host's reports and give it up to `room` copies."""
        self._now = now
        if host.id not in self._accounts:
            self._attach(host)
        for report in reports:
            if report.answer:
                self._upload(report)
        reply = self._rpc(
            host,
            results=tuple(_reported(report) for report in reports),
            cpu_req_instances=float(room),
            ncpus=room,
        )
        uploads = {info.name: info for info in reply.uploads}
        for result in reply.results:
            info = uploads[result.upload]
            token = info.url.rpartition("/")[2]
            self._uploads[result.name] = (token, info.name)
        return self._in_order(
            {result.name: int(result.workunit) for result in reply.results}
        )

    def settle(self, now: int) -> tuple[Ending, ...]:
        """Move what is due until it rests; return the workunits that ended."""
        self._now = now
        while self._engine.step(self, self):
            pass
        ended, self._ended = tuple(self._ended), []
        return ended

    def records(self) -> Mapping[int, int]:
        """Return hosts' valid results in a row, for hosts that have had any."""
        table = schema.host_apps
        with self._database.read() as connection:
            rows = connection.execute(select(table)).all()
        known = {row.host_id: row.consecutive_valid for row in rows}
        return {host: known.get(row, 0) for host, row in self._rows.items()}

    def banned(self) -> frozenset[int]:
        """Return the hosts that are banned."""
        with self._database.read() as connection:
            banned = schema.hosts.c.ban.is_not(None)
            rows = set(connection.scalars(select(schema.hosts.c.id).where(banned)))
        return frozenset(host for host, row in self._rows.items() if row in rows)

    # ------------------------------------------- the engine's validator, its server

    def check(self, result: ReceivedResult) -> ResultCheck:
        """Take every answer for well formed."""
        del result
        return ResultCheck(ResultVerdict.VALID)

    def compare(self, left: ReceivedResult, right: ReceivedResult) -> Comparison:
        """Compare two answers byte by byte."""
        same = left.path.read_bytes() == right.path.read_bytes()
        return Comparison(PairVerdict.SAME if same else PairVerdict.DIFFERENT)

    def assimilate(self, outcome: WorkunitOutcome) -> None:
        """Note how a workunit ended."""
        found = outcome.canonical
        answer = found.path.read_text() if found is not None else ""
        self._ended.append(Ending(int(outcome.workunit), answer))

    # ------------------------------------------------------------------- hosts

    def _attach(self, host: Host) -> None:
        """Make a host's account and its row, with what it begins with."""
        email = f"host{host.id}@population.invalid"
        account = self._engine.accounts.ensure(email, self._now, max_level=APP)
        self._accounts[host.id] = account
        if host.kind is HostKind.OWN:
            self._engine.roster.trust(email)
        reply = self._rpc(host, dont_send_work=True)
        self._rows[host.id] = reply.host_id
        if self._policy.season:
            quota = Quota(RULES.per_cpu, consecutive_valid=self._policy.season)
            with self._database.write() as connection:
                store_quota(connection, reply.host_id, APP, quota, known=False)

    def _in_order(self, given: Mapping[str, int]) -> tuple[Assignment, ...]:
        """Return copies in the order in which they were made; a reply has its own."""
        if not given:
            return ()
        table = schema.results
        query = select(table.c.name).where(table.c.name.in_(given)).order_by(table.c.id)
        with self._database.read() as connection:
            names = connection.scalars(query).all()
        return tuple(Assignment(name, given[name]) for name in names)

    def _rpc(self, host: Host, **fields: object) -> SchedulerReply:
        """Make one call of a host."""
        self._calls += 1
        request = SchedulerRequest(
            authenticator=self._accounts[host.id].weak_key,
            host_id=self._rows.get(host.id, 0),
            rpc_seqno=self._calls,
            cpid=host.key,
            own_program=True,
            **fields,  # type: ignore[arg-type]  # of its own fields
        )
        return self._engine.scheduler.handle(request, BASE, self._now)

    def _upload(self, report: Report) -> None:
        """Send an answer; one that comes too late is not taken."""
        token, name = self._uploads[report.copy]
        body = report.answer.encode()
        md5 = hashlib.md5(body, usedforsecurity=False).hexdigest()
        try:
            with self._engine.uploads.receive(
                token, UploadHead(name, len(body), md5, 0)
            ) as incoming:
                if incoming is not None:
                    incoming.write(body)
        except DeniedError:
            pass


def _reported(report: Report) -> ReportedResult:
    """Return a report as a client makes it."""
    if report.answer:
        return ReportedResult(report.copy, ResultState.UPLOADED)
    return ReportedResult(report.copy, ResultState.COMPUTE_ERROR, FAILED_EXIT)
