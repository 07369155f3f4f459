"""Places and findings: one constructor, one order, one way to leave out repeats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from stoilo.core.types import Finding, Severity

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable


# Most findings in one verdict; a hostile source could otherwise have one a byte
FINDINGS_SHOWN = 100


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A stretch of text: lines and columns (characters) from 1, end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int

    @classmethod
    def of_chars(cls, line: int, column: int, width: int = 1) -> Place:
        """Return `width` characters of one line."""
        return cls(line, column, line, column + width)


FIRST_PLACE = Place(1, 1, 1, 1)  # Where a finding about the whole file points


class Lines:
    """The text by lines, to turn the parser's byte offsets into columns."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._ascii = text.isascii()

    def column(self, line: int, byte_offset: int) -> int:
        """Return the column (from 1) of a byte offset (from 0) in `line` (from 1)."""
        if self._ascii or not 1 <= line <= len(self._lines):
            return max(byte_offset, 0) + 1
        head = self._lines[line - 1].encode()[:byte_offset]
        return len(head.decode(errors="ignore")) + 1

    def place(self, node: ast.AST) -> Place:
        """Return where `node` stands; nodes without a position stand at the start."""
        line = getattr(node, "lineno", None)
        if line is None:
            return FIRST_PLACE
        end_line = getattr(node, "end_lineno", None) or line
        start = getattr(node, "col_offset", 0)
        end = getattr(node, "end_col_offset", None)
        return Place(
            line,
            self.column(line, start),
            end_line,
            self.column(end_line, start + 1 if end is None else end),
        )


def make_finding(
    code: str,
    place: Place,
    message: str,
    hint: str,
    severity: Severity = Severity.ERROR,
) -> Finding:
    """Return one finding; `Finding` cuts over-long texts.

    An end before its start (the parser misplaces nodes inside f-strings) is mended.
    """
    end = max((place.end_line, place.end_column), (place.line, place.column))
    return Finding(
        code=code,
        severity=severity,
        line=place.line,
        column=place.column,
        end_line=end[0],
        end_column=end[1],
        message=message,
        hint=hint,
    )


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether any finding refuses."""
    return any(finding.severity is Severity.ERROR for finding in findings)


def in_validators(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings marked as being about the validator module, not the task's."""
    return [
        msgspec.structs.replace(
            finding, message=f"in the validators: {finding.message}"
        )
        for finding in findings
    ]


def tidy(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings in the text's order, without repeats, `FINDINGS_SHOWN` at most.

    When some must go, errors stay before warnings; a last warning says how many went.
    """
    unique = sorted(set(findings), key=_text_order)
    if len(unique) <= FINDINGS_SHOWN:
        return tuple(unique)
    first = sorted(unique, key=lambda found: found.severity is not Severity.ERROR)
    kept = sorted(first[:FINDINGS_SHOWN], key=_text_order)
    left_out = make_finding(
        "STO-P055",
        FIRST_PLACE,
        f"{len(unique) - FINDINGS_SHOWN} more findings are not shown",
        "repair the shown ones first and check again",
        Severity.WARNING,
    )
    return (*kept, left_out)


def _text_order(finding: Finding) -> tuple[int, int, int, int, str, str, str, str]:
    return (
        finding.line,
        finding.column,
        finding.end_line,
        finding.end_column,
        finding.code,
        finding.severity.value,
        finding.message,
        finding.hint,
    )
