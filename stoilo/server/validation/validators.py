"""Running a researcher's validators: in the jail, a fresh fork for each call; ours natively.

The job is `stoilo.sandbox.process.validate_job`. A validator that raises, answers with
anything but a bool or hits a limit is the researcher's fault: the task ends with the
code that says which, and is not retried (thesis §7.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.core.codec.nodes import Node
from stoilo.core.codec.skeleton import decode, encode, nodes_equal
from stoilo.core.errors import StoiloError, TrustError, UserCodeError
from stoilo.core.libraries import add_libraries, load_libraries
from stoilo.core.statement import parse_statement
from stoilo.core.types import RunLimits
from stoilo.executor.verifier.admission import check_validator_module
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.own_checks import MOST_BYTES, judge
from stoilo.sandbox.process.report import JailStatus
from stoilo.sandbox.process.supervisor import Jail
from stoilo.sandbox.process.warm_jails import (
    WarmJail,
    WarmJails,
    memory_for_zygotes,
)

if TYPE_CHECKING:
    from stoilo.executor.verifier.host_verifier import JailRunner


Watch = Callable[[Callable[[], None]], None]
"""Gets what ends a call early, from any thread."""

VALIDATE_JOB = "stoilo.sandbox.process.validate_job"
NICENESS = 10
"""Of validators: calls of researchers and volunteers come before them on a full machine."""

VALIDATOR_LIMITS = RunLimits(
    cpu_s=10, wall_s=20, output_bytes=4096, result_bytes=65_536
)


class JudgeTrouble(StoiloError):
    """The server cannot judge now, through no fault of a result; ask again later."""


class SwappedProgram(TrustError):
    """The validators are not those of the admission, and never will be (``STO-R067``)."""


@dataclass(frozen=True, slots=True)
class ValidatorProgram:
    """The validators of one task; empty entries mean the defaults."""

    source: bytes
    init_entry: str
    compare_entry: str
    level: str
    libraries: tuple[str, ...] = ()  # import names of those that the task needs


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a validator."""

    program: ValidatorProgram  # whose
    op: str  # ``init`` or ``compare``
    values: tuple[bytes, ...]  # encoded, hostile

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


def start_jail(level: str, libraries: tuple[str, ...] = ()) -> Jail:
    """Return a warm jail of a level with libraries, by their import names."""
    wide = add_libraries(load_level(level), load_libraries(libraries))
    return Jail(wide, VALIDATE_JOB, niceness=NICENESS)


class ValidatorJails:
    """One jail a level and set of libraries, started when first needed; thread-safe.

    Args:
        start: makes such a jail; what takes long holds up its own calls only.
    """

    def __init__(
        self, start: Callable[[str, tuple[str, ...]], Jail] = start_jail
    ) -> None:
        self._start = start
        self._jails = WarmJails(memory_for_zygotes())

    def of(self, level: str, libraries: tuple[str, ...] = ()) -> WarmJail:
        """Return the jail of `level` with these libraries."""
        key = (level, libraries)
        return self._jails.of(key, lambda: self._start(level, libraries))

    def close(self) -> None:
        """End every zygote; to be called when nobody asks any more."""
        self._jails.close()


def decide_natively(call: Call, most: int = MOST_BYTES) -> bool | None:
    """Return the verdict of a check of ours, which needs no jail; None of another's."""
    program = call.program
    modules = frozenset(load_level(program.level).modules)
    return judge(program.source, modules, call.op, call.entry, call.values, most)


class Validators:
    """Calls validators by level; `jail_of` starts jails when they are first needed."""

    def __init__(self, jail_of: Callable[[str, tuple[str, ...]], JailRunner]) -> None:
        self._jail_of = jail_of

    def decide(self, call: Call, watch: Watch = _unwatched) -> bool:
        """Return a validator's answer; without an entry the default's.

        Args:
            call: of which validator, on what.
            watch: gets what ends the call early.

        Raises:
            UserCodeError: ``STO-R053`` raised; ``STO-R054`` not
                a bool; ``STO-R059`` hit a limit.
            JudgeTrouble: ``STO-R042``, the run says nothing about the validator.
        """
        if not call.entry:
            return decide_default(call)
        known = decide_natively(call)
        if known is not None:
            return known
        request = encode(
            {
                "source": call.program.source.decode(),
                "op": call.op,
                "entry": call.entry,
                "values": list[Node](call.values),
            }
        )
        report = self._jail_of(call.program.level, call.program.libraries).run(
            request, VALIDATOR_LIMITS, watch=lambda exchange: watch(exchange.cancel)
        )
        if report.blames_host:
            raise JudgeTrouble("STO-R042", f"the validators' jail: {report.code}")
        # Whatever a program can do to itself is its researcher's fault: as our trouble it
        # would be asked again, for ever.
        if report.status is not JailStatus.FINISHED:
            reason = report.detail or report.code
            raise UserCodeError(
                "STO-R059",
                f"the {call.op} validator {call.entry} was stopped: {reason}",
                hint="make the validator cheaper; it runs on the server",
            )
        return _parse_verdict(report.frame, call.op, call.entry)


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
    if verdict == "not_bool":
        raise UserCodeError(
            "STO-R054",
            f"the {op} validator {entry} must return True or False: {text}",
            hint="wrap the returned value in bool(...)",
        )
    if verdict == "raised":
        raise UserCodeError(
            "STO-R053",
            f"the {op} validator {entry} raised: {text}",
            hint="test the validator on a local result first",
        )
    raise _forged(op, entry)


def _forged(op: str, entry: str) -> UserCodeError:
    """Return the ending of a validator whose process answered for the validate job."""
    return UserCodeError(
        "STO-R059", f"the {op} validator {entry} wrote an answer of its own"
    )
