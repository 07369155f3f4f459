"""What a task is, in plain words, for the person whose computer it would run on. Pure.

Everything said here has been verified before; what a stranger chose (names, topics) is
shown as text that cannot move a cursor or reverse a line.
"""

from __future__ import annotations

import time

from stoilo.audit.format.proof import ProvenLeaf
from stoilo.core.errors import PolicyRefusal, StoiloError
from stoilo.core.limits import RunLimits
from stoilo.core.plaintext import show_plainly
from stoilo.executor.bundle import HostState, VerifiedTask
from stoilo.executor.release import PartFile, TrustedRelease

__all__ = ["explain_refusal", "explain_task", "summarize_task"]

MIB = 1024 * 1024
_WIDTH = 10


def explain_task(
    task: VerifiedTask, trust: TrustedRelease, host: HostState, part: PartFile | None
) -> str:
    """Return what the task is, for whom, under which level, and what proves it.

    Args:
        task: verified.
        trust: the release that it was judged by.
        host: what this volunteer allows.
        part: the frozen runtime; None for what is installed.
    """
    statement = task.admission.statement
    rows = [
        ("what", f"function {statement.entry!r} of the source {task_digest(task)}"),
        ("", _size_words(task)),
        ("for whom", f"project {trust.origin}, account {_short(statement.submitter)}"),
        ("", f"task {statement.task_id}, attempt {statement.attempt}"),
        ("topics", ", ".join(statement.topics) or "none said"),
        ("source", "may be published" if statement.public_source else "not published"),
        ("level", f"{task.level.name}: {task.level.summary or 'no summary'}"),
        ("", f"you allow {host.max_level} at most"),
        ("runtime", _runtime_words(part)),
        ("limits", _limits_words(task.limits)),
        ("valid", f"from {_day(statement.admitted_at)} to {_day(statement.not_after)}"),
        ("review", _review_words(statement.reviewers, trust, task)),
        ("proof", f"signed by the gate's keys of epoch {statement.epoch}"),
        ("", _release_words(trust)),
        ("", _log_words(task.admission.proven)),
        ("cannot", "open files, reach the network, start processes, see your data"),
    ]
    return f"This computer may run the task.\n{_table(rows)}"


def summarize_task(task: VerifiedTask) -> str:
    """Return one line about a task that is about to run, for the log of a slot."""
    statement = task.admission.statement
    return (
        f"runs {statement.task_id} attempt {statement.attempt} at level "
        f"{task.level.name}, log entry {task.admission.proven.index}"
    )


def explain_refusal(error: StoiloError) -> str:
    """Return why this computer does not run a task, and what would help."""
    kind = (
        "This computer does not take the task; nobody is to blame."
        if isinstance(error, PolicyRefusal)
        else "This computer refuses the task."
    )
    rows = [
        ("why", f"{error.message} [{error.code}]"),
        ("help", error.hint or f"stoilo explain {error.code}"),
    ]
    return f"{kind}\n{_table(rows)}"


def task_digest(task: VerifiedTask) -> str:
    """Return the source's digest, shortened."""
    return _short(task.admission.statement.task_module)


def _size_words(task: VerifiedTask) -> str:
    """Return how much comes with the task."""
    blobs = sum(len(blob) for blob in task.blobs)
    return (
        f"{len(task.task_module):,} bytes of source, {len(task.arguments):,} of "
        f"arguments, {blobs:,} in {len(task.blobs)} data files"
    )


def _runtime_words(part: PartFile | None) -> str:
    """Return which libraries it runs with."""
    if part is None:
        return "the libraries installed here"
    return (
        f"{part.part} {part.version}, release {part.serial}, tree {_short(part.tree)}"
    )


def _limits_words(limits: RunLimits) -> str:
    """Return what it may use at most."""
    threads = "1 thread" if limits.threads == 1 else f"{limits.threads} threads"
    return (
        f"{limits.cpu_s} s of processor, {limits.wall_s} s in all, "
        f"{limits.memory_bytes // MIB:,} MiB of memory, {threads}"
    )


def _review_words(
    reviews: tuple[str, ...], trust: TrustedRelease, task: VerifiedTask
) -> str:
    """Return who looked at it."""
    if reviews:
        return f"signed by {len(reviews)} of the project's reviewers"
    policy = task.admission.statement.policy_digest
    asked = trust.needs_review(policy, task.level.name)
    return "demanded and missing" if asked else "by nobody; the policy asks for none"


def _release_words(trust: TrustedRelease) -> str:
    """Return what certifies the gate."""
    kind = (
        " of DEVELOPMENT: its offline keys lie on the server"
        if trust.development
        else ""
    )
    kind += " of a REHEARSAL" if trust.rehearsal else ""
    return (
        f"certified by root {trust.root_version}, targets {trust.targets_version}{kind}"
    )


def _log_words(proven: ProvenLeaf) -> str:
    """Return where the log holds it, and who vouches for the log."""
    place = f"entry {proven.index} of {proven.size} in the project's log"
    if proven.checkpoint_time is None:
        return f"{place}; no independent witness"
    return f"{place}; witnessed {_day(proven.checkpoint_time)}"


def _table(rows: list[tuple[str, str]]) -> str:
    """Return rows as lines; what comes from others is shown plainly."""
    return "".join(
        f"  {name:<{_WIDTH}}{show_plainly(' '.join(text.split()))}\n"
        for name, text in rows
    )


def _short(digest: str) -> str:
    """Return the first half of a digest's first half: enough to compare by eye."""
    return f"{digest[:16]}…"


def _day(seconds: int) -> str:
    """Return a time as people write it, UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
