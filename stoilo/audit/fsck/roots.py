"""Compare every recorded root with the tree that was derived, and say which is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.audit.merkle import EMPTY_ROOT

if TYPE_CHECKING:
    from stoilo.audit.fsck.anchor import Anchor
    from stoilo.audit.fsck.databases import States
    from stoilo.audit.fsck.parts import LogParts
    from stoilo.audit.fsck.tree import TreeResult

__all__ = ["check_roots"]


def check_roots(
    parts: LogParts, states: States, anchor: Anchor | None, result: TreeResult
) -> bool:
    """Report recorded roots that the tree does not have.

    Returns whether the tree has a signed root (an empty, unpublished log has none).
    """
    is_proven = False
    if anchor is not None:
        derived = _derived(result, anchor.checkpoint.size)
        is_proven = anchor.is_signed and derived == anchor.checkpoint.root
        if derived != anchor.checkpoint.root:
            _report_published(parts, anchor, derived)
    if parts.paths is not None:
        _check_databases(parts, states, anchor, result)
    return is_proven


def _derived(result: TreeResult, size: int) -> bytes | None:
    return result.roots.get(size) if size else EMPTY_ROOT


def _report_published(parts: LogParts, anchor: Anchor, derived: bytes | None) -> None:
    size = anchor.checkpoint.size
    if derived is None:
        text = f"not every one of its {size} leaves is left in some copy"
    else:
        text = f"the {size} leaves lead to another root, in whatever copies there are"
    parts.found.fault(
        "STO-L033",
        anchor.file,
        text,
        remedy="restore databases and log directory from the same moment",
    )


def _check_databases(
    parts: LogParts, states: States, anchor: Anchor | None, result: TreeResult
) -> None:
    assert parts.paths is not None  # noqa: S101 - the caller looked
    wrong: list[tuple[str, str, str]] = []
    if states.head is not None:
        size = states.head.head.size
        if _derived(result, size) != states.head.head.root:
            file = parts.name(parts.paths.head)
            wrong.append((file, "table head, row 1", f"its root of {size} leaves"))
    if states.log is not None:
        size, file = states.log.frontier.size, parts.name(parts.paths.database)
        if _derived(result, size) != states.log.root:
            wrong.append((file, "table state, row 1", f"its root of {size} leaves"))
        is_last = anchor is None or anchor.checkpoint.size <= size
        if is_last and result.frontier not in {None, states.log.frontier.hashes}:
            wrong.append((file, "table state, row 1", "its frontier"))
    for file, place, what in wrong:
        parts.found.fault(
            "STO-L044" if "head" in place else "STO-L049",
            file,
            f"{what} is not that of the leaves{_suspects(states, anchor, wrong)}",
            place=place,
            remedy=f"restore the newest backup of {file}",
        )


def _suspects(
    states: States, anchor: Anchor | None, wrong: list[tuple[str, str, str]]
) -> str:
    """Say where the fault must lie when both databases remember another root."""
    if len({file for file, _, _ in wrong}) < 2 or states.log is None:  # noqa: PLR2004 - both of two
        return ""
    start = anchor.checkpoint.size if anchor else 0
    end = states.log.frontier.size
    if start >= end:
        return ""
    return (
        f"; both databases remember another one, so a row of leaves {start} to {end - 1} "
        "was changed, which no tile covers yet"
    )
