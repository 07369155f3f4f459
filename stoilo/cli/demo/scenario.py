"""The demo's story: submit, watch, cheat, crash, check."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import subprocess
import textwrap
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

import stoilo
from stoilo.cli.demo.auditor import (
    audit_task,
    count_witnessed,
    explain_refusal,
    read_admissions,
    read_log_policy,
    read_trust,
)
from stoilo.cli.demo.parts import GATE_PROGRAMS, JAIL_PROGRAM, DemoParts
from stoilo.client.capture import Captured
from stoilo.client.options import TaskOptions
from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import StoiloError
from stoilo.low_level import SystemError as NoAgreement
from stoilo.low_level import UserError
from stoilo.low_level.redundancy import CreateOptions
from stoilo.testing.deployment import Deployment

PI_CALLS = 60
POINTS_PER_CALL = 3_000
WAIT_S = 120.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Claim:
    """One printed sentence and the evidence that was checked for it."""

    title: str
    holds: bool
    evidence: str


@dataclass
class ClaimBook:
    """Collects claims in the order they were checked."""

    claims: list[Claim] = field(default_factory=list)

    def check(self, title: str, holds: bool, evidence: str) -> Claim:
        """Record a claim; a false one fails the demo but does not stop it."""
        claim = Claim(title, bool(holds), evidence)
        self.claims.append(claim)
        return claim

    @property
    def all_hold(self) -> bool:
        """Whether there is at least one claim and every one holds."""
        return bool(self.claims) and all(claim.holds for claim in self.claims)


def render_claims(claims: list[Claim]) -> Table:
    """Return the closing table."""
    table = Table(title="what was shown", title_justify="left", show_lines=False)
    table.add_column("", width=3)
    table.add_column("claim", ratio=2, overflow="fold")
    table.add_column("seen", ratio=3, overflow="fold")
    for claim in claims:
        mark = "[green]✓[/]" if claim.holds else "[red]✗[/]"
        table.add_row(mark, claim.title, claim.evidence)
    return table


async def submit_text(conn: stoilo.Connection, text: str) -> None:
    """Submit source as an attacker would: exactly these bytes, past the capture."""
    captured = Captured(
        task_module=text,
        entry="main",
        validator_module="",
        init_entry="",
        compare_entry="",
        arguments=encode({}),
        blobs=(),
    )
    session = conn._session  # noqa: SLF001 - the attacker's own client
    await session.submit(captured, TaskOptions(), uuid.uuid4().hex)


@dataclass
class Scenario:
    """One run of the demo on one deployment."""

    deployment: Deployment  # two honest volunteers inside, the cheat beside
    parts: DemoParts  # what tests may sabotage
    book: ClaimBook  # claims so far
    say: Say  # prints one line of progress
    # Called with the number of finished Monte-Carlo calls
    progress: Callable[[int], None]

    def __post_init__(self) -> None:
        """Start with no submitted tasks."""
        self.task_ids: list[str] = []
        self.cheat: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Run every scene; the cheat is ended whatever happens."""
        self.cheat = self.parts.start_cheat(
            self.deployment, self.deployment.data.parent / "cheat"
        )
        try:
            asyncio.run(self._scenes())
        finally:
            self.cheat.terminate()
            self.cheat.wait()

    async def _scenes(self) -> None:
        connection = self.deployment.data / "connection.json"
        async with await stoilo.connect(connection) as conn:
            await self._integral(conn)
            await self._linear_solve(conn)
            await self._monte_carlo(conn)
            await self._failing(conn)
            await self._disagreeing(conn)
            await self._refusals(conn)
            await self._cheat_outvoted(conn)
        self._jail()
        self._audit()
        self._witnessed()
        self._watched()

    async def _integral(self, conn: Any) -> None:  # noqa: ANN401 - a Connection
        self.say("(a) an integral in ten parts; the integrand travels inside kwargs")
        staged = [
            conn.create_task(func=self.parts.research.integrate, kwargs=part)
            for part in self.parts.research.make_integral_parts()
        ]
        tasks = await asyncio.gather(*(task.submit() for task in staged))
        self.task_ids += [task.task_id for task in tasks]
        values = await asyncio.gather(*(task.result(timeout=WAIT_S) for task in tasks))
        good = all(isinstance(value, float) for value in values)
        total = sum(values) if good else math.nan
        self.book.check(
            "ten parts of ∫ x·sin x over [0, π] add up to π",
            good and abs(total - math.pi) < 1e-5,  # noqa: PLR2004 - midpoint rule's error
            f"{total:.8f}" if good else f"not all values: {values}",
        )

    async def _linear_solve(self, conn: Any) -> None:  # noqa: ANN401 - a Connection
        self.say("(b) a numpy linear solve, compared with a tolerance")
        system = self.parts.research.make_system()
        task = await conn.create_task(
            func=self.parts.research.solve,
            kwargs=system,
            init_valid_func=self.parts.research.residual_small,
            compare_valid_func=self.parts.research.solutions_close,
        ).submit()
        self.task_ids.append(task.task_id)
        x = await task.result(timeout=WAIT_S)
        right = hasattr(x, "shape")
        error = abs(system["a"] @ x - system["b"]).max() if right else math.inf
        self.book.check(
            "numpy solution accepted by the researcher's own validators",
            error < 1e-9,  # noqa: PLR2004 - rounding of a well-conditioned system
            f"largest residual {error:.1e} at level numeric" if right else f"{x!r}",
        )

    async def _monte_carlo(self, conn: Any) -> None:  # noqa: ANN401 - a Connection
        self.say("(c) Monte-Carlo π by map; the server is killed in the middle")
        calls = [{"seed": seed, "n": POINTS_PER_CALL} for seed in range(PI_CALLS)]
        work = conn.map(self.parts.research.count_hits, calls, chunk_items=6)
        hits: list[Any] = []
        pids: tuple[int, int] | None = None
        async for item in work:
            hits.append(item.result)
            self.progress(len(hits))
            if pids is None and len(hits) >= PI_CALLS // 4:
                pids = await self._crash()
        self.task_ids += work.task_ids
        total = sum(hit for hit in hits if isinstance(hit, int))
        expected = sum(map(self.parts.research.count_hits, calls))
        estimate = 4 * total / (PI_CALLS * POINTS_PER_CALL)
        self.book.check(
            "map kept every item across the crash",
            len(hits) == PI_CALLS and total == expected,
            f"{len(hits)} of {PI_CALLS} items, π ≈ {estimate:.4f}, equal to a local run",
        )
        self.book.check(
            "server killed with SIGKILL and restarted without losing a task",
            pids is not None and pids[0] != pids[1] and len(hits) == PI_CALLS,
            f"process {pids[0]} ended after a quarter of the items, {pids[1]} went on"
            if pids
            else "it was never killed",
        )

    async def _crash(self) -> tuple[int, int]:
        before = self.deployment.pid
        await asyncio.to_thread(self.deployment.kill)
        self.say("    server killed; starting it again")
        await asyncio.to_thread(self.deployment.start)
        return before, self.deployment.pid

    async def _failing(self, conn: Any) -> None:  # noqa: ANN401 - a Connection
        self.say("(d) a function that raises")
        task = await conn.create_task(
            func=self.parts.research.failing, kwargs={"zero": 0}
        ).submit()
        self.task_ids.append(task.task_id)
        error = await task.result(timeout=WAIT_S)
        self.book.check(
            "an exception comes back as UserError, not as a crash",
            isinstance(error, UserError) and isinstance(error, ZeroDivisionError),
            f"{type(error).__name__}: {error}",
        )

    async def _disagreeing(self, conn: Any) -> None:  # noqa: ANN401 - a Connection
        self.say("(e) a comparator that never agrees")
        task = await conn.create_task(
            func=self.parts.research.count_hits,
            kwargs={"seed": 1, "n": 10},
            compare_valid_func=self.parts.research.never_agree,
            redundancy_options=CreateOptions(min_quorum=2, max_total_results=2),
        ).submit()
        self.task_ids.append(task.task_id)
        error = await task.result(timeout=WAIT_S)
        self.book.check(
            "copies that never agree end as SystemError with a code",
            isinstance(error, NoAgreement) and error.code.startswith("STO-"),
            f"{type(error).__name__}: {error}",
        )

    async def _refusals(self, conn: Any) -> None:  # noqa: ANN401 - a Connection
        self.say("(f) hostile submissions, and one hostile program in the jail")
        for name in GATE_PROGRAMS:
            try:
                await submit_text(conn, self.parts.read_program(name))
            except StoiloError as refusal:
                family, evidence = refusal.family, str(refusal)
            else:
                family, evidence = "", "it was admitted"
            self.book.check(
                f"gate refuses {name.replace('_', ' ')}",
                family == "policy",
                textwrap.shorten(evidence, 130, placeholder=" …"),
            )

    async def _cheat_outvoted(self, conn: Any) -> None:  # noqa: ANN401 - a Connection
        outvoted = 0
        for task_id in self.task_ids:
            status = await conn.restore_task(task_id).status()
            outvoted += sum(copy.outcome == "invalid" for copy in status.copies)
        self.book.check(
            "the cheating volunteer is outvoted",
            outvoted > 0,
            f"{outvoted} false results found invalid in {len(self.task_ids)} tasks",
        )

    def _jail(self) -> None:
        self.say("    the hostile program, as if the language layer were broken")
        outcome = self.parts.probe_program(self.parts.read_program(JAIL_PROGRAM))
        killed = (outcome["status"], outcome["layer"]) == ("killed", "kernel")
        self.book.check(
            "a program that opens a socket dies in the jail, the call named",
            killed and "socket" in (outcome["error"] or ""),
            f"{outcome['status']} by the {outcome['layer']} layer: {outcome['error']}",
        )

    def _audit(self) -> None:
        self.say("    verifying every task's log proof as an auditor would")
        data = self.deployment.data
        policy = read_log_policy(data / "keys")
        proven, trouble = set(), ""
        for task_id in self.task_ids:
            try:
                proof = self.parts.prove_task(data, task_id)
                proven.add(audit_task(proof, data / "audit" / "log", policy).index)
            except StoiloError as error:
                trouble = trouble or f"; {task_id}: {error}"
        self.book.check(
            "every task has its own admission in the signed log",
            len(proven) == len(self.task_ids),
            f"{len(proven)} proofs for {len(self.task_ids)} tasks{trouble}",
        )
        code = self.parts.verify_log(Path(data))
        self.book.check(
            "the whole log verifies, beside the running server",
            code == 0,
            f"`stoilo audit verify` exits {code}",
        )

    def _witnessed(self) -> None:
        self.say("    looking for the witness in what the volunteers were sent")
        data = self.deployment.data
        trust = read_trust(data / "keys")
        sent = read_admissions(data, self.task_ids)
        count = count_witnessed(sent, trust)
        self.book.check(
            "every admission carries the cosignature of a witness with its own key",
            len(self.task_ids) <= count == len(sent),
            f"{count} of {len(sent)} admissions, under the quorum "
            f"{trust.log_policy.quorum!r} of the release's log policy",
        )
        hidden = [
            dataclasses.replace(one, proof=self.parts.hide_witnesses(one.proof))
            for one in sent
        ]
        refusals = {explain_refusal(one, trust) for one in hidden}
        self.book.check(
            "a volunteer refuses the same admissions without that cosignature",
            refusals == {"STO-L013"},
            f"the verifier's answer: {', '.join(sorted(refusals)) or 'none'}",
        )

    def _watched(self) -> None:
        self.say("    following the log over HTTP as a monitor, from its first leaf")
        line = self.deployment.line
        found = self.parts.watch_log(self.deployment.data, line.http if line else "")
        trouble = f"; {found.alarms[0]}" if found.alarms else ""
        self.book.check(
            "a monitor from outside finds every admission explained",
            not found.alarms and not found.unexplained and found.admissions > 0,
            f"{found.size} leaves, {found.admissions} admissions, "
            f"{found.unexplained} unexplained{trouble}",
        )
        self.book.check(
            "every checkpoint that a volunteer saw is one of this log",
            not found.alarms and found.seen >= len(self.task_ids),
            f"{found.seen} checkpoints came back with results{trouble}",
        )
