"""The gate at home: what it says of a captured task before anything is sent.

The same engine as the server's, in a plain child with limits, under the shipped policy and
with all shipped libraries: a server's own policy may be narrower.
"""

from __future__ import annotations

import html
from dataclasses import dataclass

from stoilo.client.capture.modules import Captured
from stoilo.client.wire import SourceRefused
from stoilo.core.codec.skeleton import decode
from stoilo.core.types import Finding, Severity, Verdict
from stoilo.policies.gate import GateRequest
from stoilo.policies.jailed import check_in_child
from stoilo.policies.levels import find_argument_types

REFUSED = "STO-R020"  # as the server says it


@dataclass(frozen=True, slots=True)
class CheckedTask:
    """What the gate says, each finding where its line was written."""

    verdict: Verdict
    origins: tuple[str, ...]  # see `Captured.origins`

    @property
    def admitted(self) -> bool:
        """Whether the shipped policy lets it in."""
        return self.verdict.admitted

    @property
    def level(self) -> str:
        """The lowest level that admits it; empty when none does."""
        return self.verdict.lowest_level

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, warnings too; lines are those of the task module."""
        return self.verdict.findings

    def error(self) -> SourceRefused:
        """Return what submitting a refused task raises."""
        errors = tuple(one for one in self.findings if one.severity is Severity.ERROR)
        error = SourceRefused(REFUSED, "the gate refuses the source", "", errors)
        error.origins = self.origins
        return error

    def __str__(self) -> str:
        """Return the verdict, then a line a finding."""
        if not self.admitted:
            return str(self.error())
        head = f"admitted at level {self.verdict.level}"
        warned = SourceRefused(REFUSED, "", "", self.findings)
        warned.origins = self.origins
        return "\n".join([head, *str(warned).splitlines()[1:]])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the same, escaped."""
        return f"<pre>{html.escape(str(self))}</pre>"


def check_captured(captured: Captured, level: str = "") -> CheckedTask:
    """Return what the gate says of a task at `level`; empty: the lowest that admits.

    Raises:
        UsageError: there is no such level.
    """
    entries = tuple(filter(None, (captured.init_entry, captured.compare_entry)))
    data = [
        captured.arguments,
        *(one for one in captured.blobs if not isinstance(one, str)),
    ]
    types = {name for one in data for name in find_argument_types(decode(one))}
    request = GateRequest(
        captured.task_module.encode(),
        captured.validator_module.encode() or None,
        captured.entry,
        level,
        validator_entries=entries,
        argument_types=tuple(sorted(types)),
    )
    return CheckedTask(check_in_child(request), captured.origins)
