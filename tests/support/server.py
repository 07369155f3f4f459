"""Stand-ins for the server's neighbours: same protocols, in memory, no processes.

Public, so that operators' own tests may use them. None of them is reachable from
`stoilo up`: a server has no flag that puts one in place of a real part.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from stoilo.core.codec.skeleton import decode, encode
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError
from stoilo.core.levels import Level, LevelLimits, SyscallRules
from stoilo.core.statement import parse_statement, statement_digest
from stoilo.core.types import Finding, RunLimits, RunStatus, Severity, Verdict
from stoilo.executor.verifier.workunit import Disposition, ResultHeader, render_result
from stoilo.policies.gate import GateRequest
from stoilo.sandbox.process.report import JailReport, JailStatus
from stoilo.server.engines.interface import (
    Assimilator,
    Comparison,
    NotDecidedYet,
    OutcomeKind,
    PairVerdict,
    ReceivedResult,
    ResultCheck,
    ResultOutcome,
    ResultProgress,
    ResultVerdict,
    ResultView,
    Validation,
    WorkunitOutcome,
    WorkunitStatus,
)
from stoilo.server.engines.workunits import WorkunitSpec

__all__ = [
    "ManualClock",
    "MemoryEngine",
    "MemoryLog",
    "PlainJudge",
    "PythonValidators",
    "StampSigner",
    "make_level",
    "make_result",
]


class ManualClock:
    """Seconds since 1970 that pass only when told to."""

    def __init__(self, now: int = 1_700_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        """Return the time."""
        return self.now


def make_level(name: str = "pure", order: int = 0) -> Level:
    """Return a level that lets nothing in, with ordinary limits."""
    usual = {"cpu_s": 60, "wall_s": 120, "memory_bytes": 2**29, "result_bytes": 2**24}
    limits = usual | {"output_bytes": 2**16, "threads": 1}
    return Level(
        name=name,
        order=order,
        summary="for tests",
        preload=(),
        modules={},
        builtins=(),
        syscalls=SyscallRules((), (), {}),
        limits=LevelLimits(limits, {**limits, "cpu_s": 600}),
        digest=hashlib.sha256(name.encode()).hexdigest(),
    )


class MemoryLog:
    """The log as a list; publishes when told, or at once."""

    def __init__(self) -> None:
        self.leaves: list[bytes] = []
        self.labels: list[str | None] = []
        self.published = True
        self.fail: Exception | None = None
        self._lock = threading.Lock()

    def append_many(
        self, leaves: Sequence[bytes], labels: Sequence[str | None] | None = None
    ) -> list[int]:
        """Append what is new and return the indices."""
        if self.fail is not None:
            raise self.fail
        with self._lock:
            for leaf, label in zip(leaves, labels or [None] * len(leaves), strict=True):
                if leaf not in self.leaves:
                    self.leaves.append(leaf)
                    self.labels.append(label)
            return [self.leaves.index(leaf) for leaf in leaves]

    def find_label(self, label: str) -> list[int]:
        """Return the places of the leaves labelled so."""
        return [place for place, one in enumerate(self.labels) if one == label]

    def wait_published(self, index: int, timeout: float | None = None) -> None:
        """Return when `index` is published."""
        del timeout
        if not self.published or index >= len(self.leaves):
            raise AssertionError("not published")

    def proof(self, index: int) -> bytes:
        """Return a text that stands for a proof."""
        return f"proof of {index}\n".encode()

    def proofs(self, indices: Sequence[int]) -> list[bytes]:
        """Return each one's."""
        return [self.proof(index) for index in indices]


class StampSigner:
    """Signs by prefixing; remembers what it was asked."""

    def __init__(self) -> None:
        self.signed: list[tuple[bytes, bytes]] = []
        self.fail: StoiloError | None = None

    def sign_admissions(
        self, admissions: Sequence[tuple[bytes, bytes]]
    ) -> list[bytes | StoiloError]:
        """Return texts that stand for envelopes."""
        if self.fail is not None:
            return [self.fail] * len(admissions)
        self.signed += admissions
        return [b"signed:" + statement for statement, _ in admissions]


@dataclass
class PlainJudge:
    """A judge that refuses a source when it contains a word of `forbidden`."""

    forbidden: tuple[bytes, ...] = (b"import os",)
    level: str = "pure"
    policy_digest: str = "1" * 64
    asked: int = 0
    last: GateRequest | None = None
    libraries: tuple[str, ...] = ()

    def judge(self, submission: GateRequest) -> Verdict:
        """Return the verdict; counts its calls."""
        self.asked += 1
        self.last = submission
        bad = any(word in submission.source for word in self.forbidden)
        finding = Finding(
            "STO-P040", Severity.ERROR, 1, 1, 1, 2, "forbidden word", "leave it out"
        )
        return Verdict(
            admitted=not bad,
            level=submission.level or self.level,
            lowest_level="" if bad else self.level,
            policy_digest=self.policy_digest,
            source_digest=content_digest(submission.source),
            findings=(finding,) if bad else (),
            libraries=self.libraries,
        )

    def judge_many(
        self, submissions: Sequence[GateRequest]
    ) -> list[Verdict | StoiloError]:
        """Return each verdict."""
        return [self.judge(one) for one in submissions]


@dataclass
class PythonValidators:
    """Validators by name as plain Python functions, with the validate job's wire."""

    functions: dict[str, Callable[..., object]] = field(default_factory=dict)

    def run(
        self, request: bytes, limits: RunLimits, *, watch: object = None
    ) -> JailReport:
        """Answer one request as `stoilo.sandbox.process.validate_job` does."""
        del limits, watch
        node = decode(request)
        assert isinstance(node, dict)
        values = node["values"]
        assert isinstance(values, list)
        function = self.functions[str(node["entry"])]
        decoded = [decode(bytes(value)) for value in values if isinstance(value, bytes)]
        text = ""
        try:
            answer = function(*decoded)
        except Exception as error:  # noqa: BLE001 - what the job reports
            verdict, text = "raised", repr(error)
        else:
            verdict = str(answer).lower() if isinstance(answer, bool) else "not_bool"
        frame = encode({"verdict": verdict, "error_text": text})
        return JailReport(JailStatus.FINISHED, frame=frame)


def make_result(
    name: str,
    statement: bytes,
    frame: object,
    *,
    output: bytes = b"",
    status: RunStatus = RunStatus.OK,
    **header: object,
) -> bytes:
    """Return a result file as an honest volunteer would write it."""
    parsed = parse_statement(statement)
    fields: dict[str, object] = {
        "format": "stoilo-result/1",
        "result": name,
        "workunit": name.rpartition("_")[0],
        "disposition": Disposition.RAN,
        "admission": statement_digest(statement),
        "attempt": parsed.attempt,
        "flavor": parsed.flavor,
        "verifier": "test",
        "status": status,
    }
    made = ResultHeader(**(fields | header))  # type: ignore[arg-type]  # test data
    body = frame if isinstance(frame, bytes) else encode(frame)
    return render_result(made, body, output)


PATIENCE_S = 60.0


class MemoryEngine:
    """Workunits in memory; `deliver` plays the volunteers and BOINC's quorum."""

    def __init__(self, directory: Path) -> None:
        self.specs: dict[str, WorkunitSpec] = {}
        self.ended: dict[str, OutcomeKind] = {}
        self.calls = 0
        self.fail: Exception | None = None
        self.refuses: Callable[[WorkunitSpec], StoiloError | None] = lambda _spec: None
        self._told: SimpleQueue[str] = SimpleQueue()
        self._directory = directory
        self._validation: Validation | None = None
        self._assimilator: Assimilator | None = None

    def create_workunits(self, specs: Sequence[WorkunitSpec]) -> None:
        """Store what is new, all of it or nothing."""
        if self.fail is not None:
            raise self.fail
        self.calls += 1
        for refusal in filter(None, map(self.refuses, specs)):
            raise refusal
        for spec in specs:
            self.specs.setdefault(spec.name, spec)

    def set_programs(self, programs: object, key: object) -> None:
        """Offer nothing: no client of BOINC's asks here."""

    def cancel(self, *names: str) -> None:
        """End workunits."""
        for name in names:
            if name in self.specs and name not in self.ended:
                self.end(name, OutcomeKind.CANCELLED)

    def ask_again(self, name: str) -> None:
        """Let whoever waits for an answer ask again."""
        self._told.put(name)

    def status(self, name: str) -> WorkunitStatus | None:
        """Return where a workunit is."""
        if name not in self.specs:
            return None
        quorum = self.specs[name].redundancy.min_quorum
        copy = ResultView(
            f"{name}_0", ResultProgress.UNSENT, ResultOutcome.NONE, "", 0, 0
        )
        text = f"needs {quorum} distinct users, 1 attached"
        return WorkunitStatus(name, (copy,), self.ended.get(name), 1, text)

    def settled(self, names: Collection[str]) -> frozenset[str]:
        """Return the names that are unknown or have ended: each is told at once."""
        return frozenset(set(names) - set(self.specs) | set(names) & set(self.ended))

    def set_release(self, bundle: bytes) -> None:
        """Ignore the release."""

    def start(self, validation: Validation, assimilator: Assimilator) -> None:
        """Remember whom to ask."""
        self._validation, self._assimilator = validation, assimilator

    def close(self) -> None:
        """Do nothing."""

    def end(
        self,
        name: str,
        kind: OutcomeKind,
        *,
        canonical: ReceivedResult | None = None,
        valid: tuple[ReceivedResult, ...] = (),
        code: str = "",
        message: str = "",
        quorum: int = 0,
    ) -> None:
        """Tell the assimilator how a workunit ended."""
        assert self._assimilator is not None
        self.ended[name] = kind
        outcome = WorkunitOutcome(name, kind, canonical, valid, code, message, quorum)
        while True:
            try:
                return self._assimilator.assimilate(outcome)
            except NotDecidedYet:
                self._told.get(timeout=PATIENCE_S)

    def receive(self, name: str, number: int, data: bytes) -> ReceivedResult:
        """Write a result file as if a host had uploaded it."""
        copy = f"{name}_{number}"
        path = self._directory / copy
        path.write_bytes(data)
        digest = content_digest(data)
        return ReceivedResult(
            copy, name, path, len(data), digest, number + 1, number + 1, 0
        )

    def check(self, result: ReceivedResult) -> ResultCheck:
        """Ask about a result until there is an answer."""
        assert self._validation is not None
        while (said := self._validation.check(result)).verdict is ResultVerdict.PENDING:
            self._told.get(timeout=PATIENCE_S)
        return said

    def compare(self, left: ReceivedResult, right: ReceivedResult) -> Comparison:
        """Ask about a pair until there is an answer."""
        assert self._validation is not None
        ask = self._validation.compare
        while (said := ask(left, right)).verdict is PairVerdict.PENDING:
            self._told.get(timeout=PATIENCE_S)
        return said

    def deliver(self, name: str, files: Sequence[bytes]) -> OutcomeKind:
        """Judge files in order until a quorum agrees; report the end."""
        quorum, code, message = self.specs[name].redundancy.min_quorum, "", ""
        valid: list[ReceivedResult] = []
        for number, data in enumerate(files):
            result = self.receive(name, number, data)
            check = self.check(result)
            if check.verdict is ResultVerdict.FATAL:
                return self._fail(
                    name, OutcomeKind.VALIDATOR_FAILED, check.code, check.message
                )
            if check.verdict is not ResultVerdict.VALID:
                code, message = check.code, check.message
                continue
            valid.append(result)
            group = [result]
            for other in valid[:-1]:
                pair = self.compare(other, result)
                if pair.verdict is PairVerdict.FATAL:
                    return self._fail(
                        name, OutcomeKind.VALIDATOR_FAILED, pair.code, pair.message
                    )
                if pair.verdict is PairVerdict.SAME:
                    group.append(other)
            if len(group) >= quorum:
                self.end(
                    name, OutcomeKind.CANONICAL, canonical=result, valid=tuple(group)
                )
                return OutcomeKind.CANONICAL
        if not valid:
            return self._fail(name, OutcomeKind.TOO_MANY_ERRORS, code, message)
        self.end(name, OutcomeKind.TOO_MANY_SUCCESS, valid=tuple(valid))
        return OutcomeKind.TOO_MANY_SUCCESS

    def _fail(
        self, name: str, kind: OutcomeKind, code: str, message: str
    ) -> OutcomeKind:
        self.end(name, kind, code=code, message=message)
        return kind
