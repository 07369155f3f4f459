"""`stoilo audit show TASK --again`: run an admitted task once more here, and compare."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.audit.read.case import (
    MAX_CASE_BYTES,
    CheckedCase,
    RecordedItem,
    check_case,
    check_part,
    parse_case,
)
from stoilo.cli.groups import require_extra
from stoilo.cli.output import read_file
from stoilo.cli.sources import read_kwargs
from stoilo.core.codec import skeleton
from stoilo.core.digests import content_digest
from stoilo.core.errors import PolicyRefusal, UsageError, UserCodeError, show_plainly
from stoilo.core.levels import Level
from stoilo.core.libraries import Library, add_libraries, load_libraries
from stoilo.core.types import BOUNDS, RunOutcome, RunStatus

if TYPE_CHECKING:
    from stoilo.audit.read.case import Case
    from stoilo.audit.read.reader import LogView
    from stoilo.core.statement import Statement

DIFFERS: Final = "STO-L144"
Compare = Callable[[bytes, bytes], bool]


class Verdict(StrEnum):
    """What a run here is to what volunteers agreed on, from best to worst."""

    SAME = "same"  # byte for byte
    EQUAL = "equal"  # other bytes, the same by the task's own comparator
    UNRECORDED = "unrecorded"  # volunteers agreed on nothing for this call
    DIFFERENT = "different"


_SAID: Final = {
    Verdict.SAME: "same: the run here came to what the log records, byte for byte",
    Verdict.EQUAL: "equal: other bytes, and the same answer by the task's comparator",
    Verdict.UNRECORDED: "unrecorded: volunteers agreed on nothing to compare with",
    Verdict.DIFFERENT: f"different: the run here came to something else [{DIFFERS}]",
}
_WHY: Final = (
    "Figures of numpy and torch may differ in their last digits between processors: run it "
    "on another one, or compare the values yourself. Whole numbers and text that differ "
    "mean that the volunteers, or this machine, are wrong."
)


@dataclass(frozen=True, slots=True)
class Given:
    """What the auditor brings along: files, not yet read."""

    case: Path | None  # None: the server's own tables, below a data directory
    kwargs: str | None  # arguments that the case does not tell
    blobs: tuple[Path, ...]  # stored values that they name, in any order


def run_again(log: LogView, task: str, given: Given) -> tuple[dict[str, object], str]:
    """Return what came of a task run again: a record for scripts, lines for people.

    Raises:
        TrustError: ``STO-L141`` the case is not what the log names.
        PolicyRefusal: ``STO-X013`` this installation cannot run it as it was admitted.
        UsageError: ``STO-L023``, ``STO-L145``, ``STO-U003``: something is not there.
    """
    require_extra("executor")
    checked = check_case(log, _find_case(log, task, given))
    statement = checked.statement
    if task and task not in {statement.task_id, checked.outcome.task}:
        raise UsageError("STO-U003", "the case is of another task")
    arguments, blobs = _find_arguments(checked, given), _find_blobs(log, checked, given)
    runs = _run(checked, arguments, blobs, find_level(statement))
    pairs = zip(checked.items, runs, strict=True)
    with _comparing(checked) as compare:
        verdicts = [compare_item(one, run, compare) for one, run in pairs]
    return _describe(checked, verdicts, runs[0])


def _find_case(log: LogView, task: str, given: Given) -> Case:
    if given.case is not None:
        return parse_case(read_file(given.case, MAX_CASE_BYTES))
    if log.source.paths is None:
        raise UsageError(
            "STO-U003",
            "a public log does not hold arguments, results and salts",
            hint="ask the task's owner for its case (its page in the console has it) and "
            "pass --case FILE, or use --data with the server's own directory",
        )
    require_extra("server")
    from stoilo.server.db import rows  # noqa: PLC0415 - of an extra
    from stoilo.server.log.public_records import make_case  # noqa: PLC0415
    from stoilo.server.operations.access import open_accounts  # noqa: PLC0415

    data = log.source.paths.log.parent.parent
    with open_accounts(data, os.environ) as store, store.read() as connection:
        found = rows.find_task(connection, task)
        if found is None:
            raise UsageError("STO-L023", f"the server has no task {task[:80]!r}")
        return make_case(connection, found)


def _find_arguments(checked: CheckedCase, given: Given) -> bytes:
    if given.kwargs is None:
        if not checked.case.arguments:
            raise UsageError(
                "STO-L145",
                "the case does not hold the arguments",
                hint="pass those that its owner gives you: --kwargs @FILE",
            )
        return checked.case.arguments
    arguments = skeleton.encode(read_kwargs(given.kwargs))
    check_part("arguments", arguments, checked.statement.arguments)
    return arguments


def _find_blobs(log: LogView, checked: CheckedCase, given: Given) -> tuple[bytes, ...]:
    """Return the stored values that the arguments name, each by its digest."""
    brought = [read_file(one, BOUNDS.blob_bytes) for one in given.blobs]
    here: dict[str, bytes] = {content_digest(one): one for one in brought}
    paths = log.source.paths
    for digest in checked.statement.blobs:
        if digest not in here and paths is not None and given.case is None:
            place = paths.log.parent.parent / "blobs" / digest[:2] / digest
            with contextlib.suppress(UsageError):
                here[digest] = read_file(place, BOUNDS.blob_bytes)
        check_part(f"stored value {digest}", here.get(digest, b""), digest)
    return tuple(here[digest] for digest in checked.statement.blobs)


def find_level(statement: Statement) -> Level:
    """Return the level as admitted, with its libraries, which must all be the same here.

    Raises:
        PolicyRefusal: ``STO-X013`` naming what this installation lacks.
    """
    from stoilo.executor.volunteer.installed import installed_flavors  # noqa: PLC0415
    from stoilo.flavors.manifest import shipped_flavors  # noqa: PLC0415 - of an extra
    from stoilo.policies.levels import load_level  # noqa: PLC0415
    from stoilo.sandbox.language.rules import LANGUAGE_DIGEST  # noqa: PLC0415

    names: dict[str, str] = {one.digest: one.name for one in shipped_flavors()}
    name = names.get(statement.flavor)
    level = load_level(statement.level)
    known: dict[str, Library] = {one.digest: one for one in load_libraries()}
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    lacks = {
        f"Python {statement.python}": statement.python == python,
        "the level as it was": level.digest == statement.level_digest,
        "the language layer as it was": statement.language_digest == LANGUAGE_DIGEST,
        "its described libraries": known.keys() >= {*statement.libraries},
        f"its flavor {name or statement.flavor}": statement.flavor
        in installed_flavors(),
    }
    missing = [what for what, is_here in lacks.items() if not is_here]
    if missing:
        raise PolicyRefusal(
            "STO-X013",
            f"it cannot be run here as it was admitted: {', '.join(missing)} is not here",
            hint="run it with the release of stoilo that the project had then, and with "
            "the flavor's libraries (`stoilo flavor show` lists them)",
        )
    return add_libraries(level, map(known.__getitem__, statement.libraries))


def _run(
    checked: CheckedCase, arguments: bytes, blobs: tuple[bytes, ...], level: Level
) -> tuple[RunOutcome, ...]:
    """Run it in a jail of its level, with its own seed, clock and limits."""
    from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest  # noqa: PLC0415
    from stoilo.sandbox.process.report import read_items, read_outcome  # noqa: PLC0415
    from stoilo.sandbox.process.supervisor import Jail  # noqa: PLC0415

    statement = checked.statement
    request = TaskRequest(
        source=checked.case.task_module.decode("utf-8", "replace"),
        entry=statement.entry,
        arguments=arguments,
        blobs=blobs,
        seed=statement.seed,
        now=statement.admitted_at,
        items=statement.map_items,
    )
    with Jail(level, TASK_JOB) as jail:
        report = jail.run(request.encode(), statement.limits)
    if statement.map_items:
        return read_items(report, statement.map_items)
    return (read_outcome(report),)


@contextlib.contextmanager
def _comparing(checked: CheckedCase) -> Iterator[Compare]:
    """Yield what says whether two encoded values are the same answer: in a jail, if own."""
    from stoilo.server.validation import validators  # noqa: PLC0415 - starts slowly

    case, statement = checked.case, checked.statement
    libraries = tuple(
        one.name for one in load_libraries() if one.digest in statement.libraries
    )
    program = validators.ValidatorProgram(
        case.validator_module, "", case.compare_entry, statement.level, libraries
    )
    with contextlib.closing(validators.ValidatorJails()) as jails:
        judge = validators.Validators(jails.of)

        def compare(left: bytes, right: bytes) -> bool:
            with contextlib.suppress(UserCodeError):  # it raises, so they are not alike
                return judge.decide(validators.Call(program, "compare", (left, right)))
            return False

        yield compare


def compare_item(recorded: RecordedItem, run: RunOutcome, compare: Compare) -> Verdict:
    """Return what one call's run here is to what volunteers agreed on."""
    if recorded.state not in {"succeeded", "user_error"}:
        return Verdict.UNRECORDED
    if recorded.state == "user_error":
        kind = run.error.partition(":")[0]
        alike = run.status is RunStatus.USER_ERROR and kind == recorded.error_type
        return Verdict.SAME if alike else Verdict.DIFFERENT
    if run.status is not RunStatus.OK or run.value is None:
        return Verdict.DIFFERENT
    if run.value == recorded.value or content_digest(run.value) == recorded.value_blob:
        return Verdict.SAME
    if recorded.value is not None and compare(recorded.value, run.value):
        return Verdict.EQUAL
    return Verdict.DIFFERENT


def _describe(
    checked: CheckedCase, verdicts: list[Verdict], first: RunOutcome
) -> tuple[dict[str, object], str]:
    statement, outcome = checked.statement, checked.outcome
    verdict = max(verdicts, key=[*Verdict].index)
    apart = [at for at, one in enumerate(verdicts) if one is Verdict.DIFFERENT]
    record: dict[str, object] = {
        "verdict": verdict.value,
        "code": DIFFERS if apart else None,
        "task_id": statement.task_id,
        "attempt": statement.attempt,
        "admission": checked.admission,
        "outcome": checked.decided,
        "state": outcome.state,
        "agreeing": outcome.agreeing,
        "entry": statement.entry,
        "source": statement.task_module,
        "arguments": statement.arguments,
        "level": statement.level,
        "policy": statement.policy_digest,
        "flavor": statement.flavor,
        "calls": Counter(one.value for one in verdicts),
        "different": apart,
        "here": {"status": first.status.value, "error": first.error or None},
    }
    lines = [
        f"admission: entry {checked.admission}, its outcome: entry {checked.decided}",
        f"source: {statement.task_module}, function {show_plainly(statement.entry)}",
        f"level {statement.level}, policy {statement.policy_digest}",
        f"volunteers: {outcome.state}"
        + (f", {outcome.agreeing} agreed" if outcome.agreeing else ""),
        f"here: {first.status.value} {show_plainly(first.error)}".rstrip(),
        _SAID[verdict],
    ]
    if len(verdicts) > 1:
        lines.append(
            f"{verdicts.count(Verdict.SAME)} of {len(verdicts)} calls are same"
        )
    if apart:
        shown = ", ".join(map(str, apart[:20]))
        lines += [f"calls that differ: {shown}"] if len(verdicts) > 1 else []
        lines.append(_WHY)
    return record, "\n".join(lines)
