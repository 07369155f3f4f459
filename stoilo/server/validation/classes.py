"""Equivalence classes of answers (thesis §7.2): pure, the comparator comes in.

Two user errors are the same; exactly one error against a value is different; else the
comparator decides. A class speaks when it has a quorum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stoilo.core.types import RunStatus, TaskState
from stoilo.server.db.records import ItemResult
from stoilo.server.validation.answers import Answer, ItemAnswer

CompareValues = Callable[[bytes, bytes], bool]
"""Says whether two encoded values are the same answer."""


def same_items(left: ItemAnswer, right: ItemAnswer, compare: CompareValues) -> bool:
    """Whether two countable answers to one call are in the same class."""
    if left.status is not right.status:
        return False
    if left.status is RunStatus.USER_ERROR:
        return True
    return compare(left.value or b"", right.value or b"")


def item_outcome(
    answers: Sequence[ItemAnswer], quorum: int, compare: CompareValues
) -> ItemResult:
    """Return the outcome of one call: the first class that reaches `quorum`.

    Without one it is a system error ``STO-R058``; the client sends that item again.
    """
    classes: list[list[ItemAnswer]] = []
    for answer in answers:
        if not answer.countable:
            continue
        for members in classes:
            if same_items(members[0], answer, compare):
                members.append(answer)
                break
        else:
            classes.append([answer])
        for members in classes:
            if len(members) >= quorum:
                return render_item(members[0])
    failed = next((answer for answer in answers if not answer.countable), None)
    return ItemResult(
        TaskState.SYSTEM_ERROR,
        error_text=failed.error_text if failed else "the copies do not agree",
        code=(failed.code if failed else "") or "STO-R058",
    )


def render_item(answer: ItemAnswer) -> ItemResult:
    """Return the outcome that a countable answer stands for."""
    if answer.status is RunStatus.OK:
        return ItemResult(TaskState.SUCCEEDED, value=answer.value)
    return ItemResult(
        TaskState.USER_ERROR,
        error_type=answer.error_type,
        error_text=answer.error_text,
        code=answer.code,
    )


def item_outcomes(
    answers: Sequence[Answer], quorum: int, compare: CompareValues
) -> tuple[ItemResult, ...]:
    """Return the outcome of every call of a map task, each with its own classes."""
    columns = zip(*(answer.items for answer in answers), strict=True)
    return tuple(item_outcome(column, quorum, compare) for column in columns)
