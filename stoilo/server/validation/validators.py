"""Running a researcher's validators: in the jail, a fresh fork for each call.

The job is `stoilo.sandbox.process.validate_job`. A validator that raises, answers with
anything but a bool or hits a limit is the researcher's fault: the task ends with the
code that says which, and is not retried (thesis §7.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stoilo.core.codec.nodes import Node
from stoilo.core.codec.skeleton import decode, encode, nodes_equal
from stoilo.core.errors import StoiloError, TrustError, UserCodeError
from stoilo.core.limits import RunLimits
from stoilo.core.statement import parse_statement
from stoilo.executor.verifier.admission import check_validator_module

Watch = Callable[[Callable[[], None]], None]
"""Gets what ends a call early, from any thread."""

VALIDATOR_LIMITS = RunLimits(
    cpu_s=10, wall_s=20, output_bytes=4096, result_bytes=65_536
)


class JudgeTrouble(StoiloError):
    """The server cannot judge now, through no fault of a result; ask again later."""


class JailTrouble(JudgeTrouble):
    """The jail itself failed (``STO-R042``)."""


class SwappedProgram(TrustError):
    """The validators are not those of the admission, and never will be (``STO-R067``)."""


@dataclass(frozen=True, slots=True)
class JailAnswer:
    """What came out of one jailed run.

    Attributes:
        finished: whether the job wrote its frame; else it was stopped or ended itself.
        frame: encoded skeleton, hostile.
        reason: why it did not finish.
    """

    finished: bool
    frame: bytes = b""
    reason: str = ""


class JailRunner(Protocol):
    """A warm jail of one level for the validate job; raises `JailTrouble`."""

    def run(self, request: bytes, limits: RunLimits, watch: Watch) -> JailAnswer:
        """Run one request in a fresh fork; blocks, thread-safe.

        `watch` gets what ends the run early, from any thread, before it begins.
        """
        ...


@dataclass(frozen=True, slots=True)
class ValidatorProgram:
    """The validators of one task; empty entries mean the defaults."""

    source: bytes
    init_entry: str
    compare_entry: str
    level: str


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a validator.

    Attributes:
        program: whose.
        op: ``init`` or ``compare``.
        values: encoded, hostile.
    """

    program: ValidatorProgram
    op: str
    values: tuple[bytes, ...]

    @property
    def entry(self) -> str:
        """The function that is called; empty for the default."""
        program = self.program
        return program.init_entry if self.op == "init" else program.compare_entry


def _unwatched(_stop: Callable[[], None]) -> None:
    """Let nobody end a call."""


def check_program(admitted: bytes, source: bytes) -> None:
    """Refuse to judge by validators that are not those of the admission.

    Args:
        admitted: the attempt's statement as it was logged and signed.
        source: the validator module as the server holds it now.

    Raises:
        SwappedProgram: ``STO-R067``: the server's files were swapped, no result is judged.
    """
    try:
        check_validator_module(parse_statement(admitted), source)
    except TrustError as error:
        raise SwappedProgram(
            "STO-R067",
            f"the validators that the server holds are not those that it admitted"
            f" ({error.code})",
        ) from error


class Validators:
    """Calls validators by level; `jail_of` starts jails when they are first needed."""

    def __init__(self, jail_of: Callable[[str], JailRunner]) -> None:
        self._jail_of = jail_of

    def agree(self, program: ValidatorProgram, left: bytes, right: bytes) -> bool:
        """Return whether two encoded values are the same answer; see `decide`."""
        return self.decide(Call(program, "compare", (left, right)))

    def decide(self, call: Call, watch: Watch = _unwatched) -> bool:
        """Return a validator's answer; without an entry the default's.

        Args:
            call: of which validator, on what.
            watch: gets what ends the call early.

        Raises:
            UserCodeError: ``STO-R053``, ``STO-R055`` raised; ``STO-R054``, ``STO-R056`` not
                a bool; ``STO-R059`` hit a limit.
            JailTrouble: ``STO-R042``.
        """
        if not call.entry:
            return decide_default(call)
        request = encode(
            {
                "source": call.program.source.decode(),
                "op": call.op,
                "entry": call.entry,
                "values": list[Node](call.values),
            }
        )
        jail = self._jail_of(call.program.level)
        answer = jail.run(request, VALIDATOR_LIMITS, watch)
        if not answer.finished:
            raise UserCodeError(
                "STO-R059",
                f"the {call.op} validator {call.entry} was stopped: {answer.reason}",
                hint="make the validator cheaper; it runs on the server",
            )
        return _parse_verdict(answer.frame, call.op, call.entry)


def decide_default(call: Call) -> bool:
    """Return the default's answer: every value is accepted, equal ones are the same."""
    if call.op == "init":
        return True
    left, right = call.values
    return left == right or nodes_equal(decode(left), decode(right))


def _parse_verdict(frame: bytes, op: str, entry: str) -> bool:
    try:
        node = decode(frame)
    except TrustError as error:
        raise _forged(op, entry) from error
    record = node if isinstance(node, dict) else {}
    verdict, text = record.get("verdict"), str(record.get("error_text", ""))[:1000]
    if verdict in {"true", "false"}:
        return bool(verdict == "true")
    raised, not_bool = (
        ("STO-R053", "STO-R054") if op == "init" else ("STO-R055", "STO-R056")
    )
    if verdict == "not_bool":
        raise UserCodeError(
            not_bool,
            f"the {op} validator {entry} must return True or False: {text}",
            hint="wrap the returned value in bool(...)",
        )
    if verdict == "raised":
        raise UserCodeError(
            raised,
            f"the {op} validator {entry} raised: {text}",
            hint="test the validator on a local result first",
        )
    raise _forged(op, entry)


def _forged(op: str, entry: str) -> UserCodeError:
    """Return the ending of a validator whose process answered for the validate job."""
    return UserCodeError(
        "STO-R059", f"the {op} validator {entry} wrote an answer of its own"
    )
