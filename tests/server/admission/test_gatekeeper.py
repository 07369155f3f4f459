from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stoilo.policies.gate import GateRequest
from stoilo.policies.jailed import too_costly
from stoilo.policies.policy import default_policy
from stoilo.server.admission.gatekeeper import Gatekeeper
from tests.support.server import PlainJudge
from tests.support.serverbench import Bench

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoilo.core.errors import StoiloError
    from stoilo.core.types import Verdict


@dataclass
class GroupingJudge(PlainJudge):
    """Remembers which sources were judged together."""

    groups: list[set[bytes]] = field(default_factory=list)

    def judge_many(
        self, submissions: Sequence[GateRequest]
    ) -> list[Verdict | StoiloError]:
        self.groups.append({one.source for one in submissions})
        return super().judge_many(submissions)


def source(account: int, number: int) -> GateRequest:
    return GateRequest(b"%d:%d" % (account, number), entry="task")


def make_gate(judge: PlainJudge, bench: Bench) -> Gatekeeper:
    return Gatekeeper(judge, bench.store, bench.clock, default_policy())


async def judge_all(gate: Gatekeeper, accounts: int, each: int) -> list[Verdict]:
    return await asyncio.gather(
        *(
            gate.judge(source(account, number), account)
            for number in range(each)
            for account in range(accounts)
        )
    )


def test_sources_of_one_account_are_judged_together_and_of_two_never(
    bench: Bench,
) -> None:
    judge = GroupingJudge()
    gate = make_gate(judge, bench)
    verdicts = asyncio.run(judge_all(gate, accounts=3, each=6))
    assert all(verdict.admitted for verdict in verdicts)
    assert max(map(len, judge.groups)) > 1
    owners = [{one.split(b":")[0] for one in group} for group in judge.groups]
    assert all(len(owner) == 1 for owner in owners)


def test_verdicts_of_a_batch_are_stored_with_the_next_transaction(bench: Bench) -> None:
    gate = make_gate(PlainJudge(), bench)
    asyncio.run(judge_all(gate, accounts=1, each=6))
    with bench.store.write() as connection:
        gate.save_new(connection)
    again = PlainJudge()
    asyncio.run(judge_all(make_gate(again, bench), 1, 6))
    assert again.asked == 0


@dataclass
class SlowJudge(PlainJudge):
    """Has no time for a source."""

    def judge(self, submission: GateRequest) -> Verdict:
        self.asked += 1
        return too_costly(submission)


def test_refusal_of_a_busy_machine_is_not_remembered(bench: Bench) -> None:
    judge = SlowJudge()
    gate = make_gate(judge, bench)
    for _ in range(2):
        (verdict,) = asyncio.run(judge_all(gate, accounts=1, each=1))
        assert not verdict.admitted
    with bench.store.write() as connection:
        gate.save_new(connection)
    assert judge.asked == 2
    asyncio.run(judge_all(make_gate(judge, bench), accounts=1, each=1))
    assert judge.asked == 3
