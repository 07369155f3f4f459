from dataclasses import dataclass, field
from threading import Thread

import pytest

from stoilo.core.errors import InternalError
from stoilo.core.types import RunLimits
from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.jailed import GATE_JOB, Gate
from stoilo.policies.levels import load_level
from stoilo.policies.wire import answer_requests, render_requests
from stoilo.sandbox.process.supervisor import Jail

REQUEST = GateRequest(b"import math\ndef f(d):\n    return math.pi\n")


@dataclass
class Report:
    """A jail's report, as far as the gate reads it."""

    status: str = "finished"
    frame: bytes = b""
    limit: str = ""


@dataclass
class ScriptedJail:
    """A jail whose children end as the script says, then answer honestly."""

    script: list[Report] = field(default_factory=list)
    runs: int = 0

    def run(
        self, request: bytes, limits: RunLimits, wall_s: float | None = None
    ) -> Report:
        assert limits.threads == 1
        assert wall_s is None
        self.runs += 1
        if self.script:
            return self.script.pop(0)
        return Report(frame=answer_requests(request))


def sources(count: int) -> list[GateRequest]:
    return [GateRequest(b"def f(d): return %d\n" % number) for number in range(count)]


def test_many_sources_share_one_child() -> None:
    jail, requests = ScriptedJail(), [*sources(3), GateRequest(b"import os\n")]
    assert Gate(jail).judge_many(requests) == [judge(one) for one in requests]
    assert jail.runs == 1


@pytest.mark.parametrize(
    "report",
    [
        Report("killed", limit="cpu_s"),
        Report("crashed"),
        Report(frame=b"[]"),
        Report(frame=b"{"),
    ],
)
def test_batch_that_is_not_answered_is_asked_one_by_one(report: Report) -> None:
    jail = ScriptedJail([report])
    assert Gate(jail).judge_many(sources(3)) == [judge(one) for one in sources(3)]
    assert jail.runs == 4


def test_forged_answer_in_a_batch_is_an_error_for_that_source_only() -> None:
    one, other = sources(2)
    honest = answer_requests(render_requests([one]))[1:-1]
    forged = b"[" + honest + b"," + honest + b"]"
    found = Gate(ScriptedJail([Report(frame=forged)])).judge_many([one, other])
    assert found[0] == judge(one)
    assert isinstance(found[1], InternalError)


def test_large_sources_do_not_share_a_child() -> None:
    jail = ScriptedJail()
    large = [GateRequest(b"#" * 600_000 + b"%d" % number) for number in range(2)]
    Gate(jail).judge_many(large)
    assert jail.runs == 2


def test_verdict_is_judged_once_for_each_request() -> None:
    jail = ScriptedJail()
    gate = Gate(jail)
    assert gate.judge(REQUEST) == gate.judge(REQUEST) == judge(REQUEST)
    assert jail.runs == 1


def test_old_verdicts_are_forgotten() -> None:
    jail = ScriptedJail()
    gate = Gate(jail, remembered=1)
    other = GateRequest(b"def f(d): return 2\n")
    for request in (REQUEST, other, REQUEST):
        gate.judge(request)
    assert jail.runs == 3


def test_source_that_exceeds_the_limits_is_refused() -> None:
    gate = Gate(ScriptedJail([Report("killed", limit="cpu_s")]))
    verdict = gate.judge(REQUEST)
    assert [one.code for one in verdict.findings] == ["STO-P054"]
    assert not verdict.admitted


def test_refusal_of_a_slow_machine_is_not_remembered() -> None:
    gate = Gate(ScriptedJail([Report("killed", limit="wall_s")]))
    assert not gate.judge(REQUEST).admitted
    assert gate.judge(REQUEST).admitted


def test_child_that_dies_with_its_zygote_is_asked_again() -> None:
    gate = Gate(ScriptedJail([Report("crashed"), Report("crashed")]))
    assert gate.judge(REQUEST).admitted


def test_source_that_always_breaks_the_child_is_refused() -> None:
    gate = Gate(ScriptedJail([Report("crashed")] * 3))
    assert not gate.judge(REQUEST).admitted


@pytest.mark.parametrize("status", ["killed", "refused"])
def test_child_stopped_by_the_kernel_layer_is_our_error(status: str) -> None:
    with pytest.raises(InternalError, match="STO-P004"):
        Gate(ScriptedJail([Report(status)])).judge(REQUEST)


def test_forged_answer_is_not_believed_or_remembered() -> None:
    forged = answer_requests(b"")
    other = GateRequest(b"def g(d): return 1\n")
    jail = ScriptedJail([Report(frame=b"{}"), Report(frame=forged)])
    gate = Gate(jail)
    with pytest.raises(InternalError, match="STO-P004"):
        gate.judge(other)
    assert jail.runs == 1


@pytest.fixture(scope="module")
def gate():
    with Jail(load_level("pure"), GATE_JOB) as jail:
        yield Gate(jail)


@pytest.mark.parametrize(
    "source",
    [
        REQUEST.source,
        b"",
        b"\xff",
        b"\0" * 9999,
        b"x = " + b"-" * 9000 + b"1",
        b"x = " + b"a." * 4990 + b"a",
        b"if 1: pass\n" + b"elif 1: pass\n" * 9000,
        "p\u0430y = '\u202e'".encode(),
        b"import os\ndef f(d): return os",
    ],
)
def test_jailed_gate_agrees_with_the_pure_one(gate: Gate, source: bytes) -> None:
    assert gate.judge(GateRequest(source)) == judge(GateRequest(source))


def test_jailed_batch_agrees_with_the_pure_gate(gate: Gate) -> None:
    requests = [*sources(5), GateRequest(b"\xff"), GateRequest(b"import os\n")]
    assert gate.judge_many(requests) == [judge(one) for one in requests]


def test_jailed_gate_serves_threads(gate: Gate) -> None:
    requests = [GateRequest(b"def f(d): return %d" % number) for number in range(8)]
    verdicts: list[bool] = []
    threads = [
        Thread(target=lambda one=one: verdicts.append(gate.judge(one).admitted))
        for one in requests
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [True] * 8
