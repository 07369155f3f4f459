"""One thing that the gate or the language layer says about a place in a source."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["Finding", "Severity"]


class Severity(StrEnum):
    """How bad a finding is; any error refuses."""

    ERROR = "error"
    WARNING = "warning"


class Finding(msgspec.Struct, frozen=True):
    """One thing the gate has to say about a place in the source.

    Lines and columns count from 1; the end is exclusive in columns.
    """

    code: str
    severity: Severity
    line: int
    column: int
    end_line: int
    end_column: int
    message: str
    hint: str
