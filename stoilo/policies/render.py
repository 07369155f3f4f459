"""Verdicts as text with carets, or as the JSON object of design §7.

Quoted source is hostile to terminals as well: every character that is not plainly
printable is shown as an escape, and long lines are shown around the finding.
"""

from __future__ import annotations

import json

from stoilo.core.types import Finding, Severity, Verdict

__all__ = ["render_json", "render_text", "verdict_word"]

_SHOWN_CHARS = 100  # of a source line
_LEAD_CHARS = 30  # shown before the finding when a line is cut


def verdict_word(verdict: Verdict) -> str:
    """Return ``admitted`` or ``refused``."""
    return "admitted" if verdict.admitted else "refused"


def render_json(verdict: Verdict) -> str:
    """Return the verdict as one JSON object, keys as the contract names them."""
    document = {
        "verdict": verdict_word(verdict),
        "level": verdict.level,
        "lowest_level": verdict.lowest_level or None,
        "policy_digest": verdict.policy_digest,
        "source_digest": verdict.source_digest,
        "findings": [
            {
                "code": finding.code,
                "severity": finding.severity.value,
                "line": finding.line,
                "column": finding.column,
                "end_line": finding.end_line,
                "end_column": finding.end_column,
                "message": finding.message,
                "hint": finding.hint,
            }
            for finding in verdict.findings
        ],
    }
    return json.dumps(document)


def render_text(verdict: Verdict, source: bytes, filename: str) -> str:
    """Return the verdict as compilers write it, findings first and the sum last.

    Args:
        verdict: of the gate.
        source: the bytes that were judged.
        filename: as the user wrote it.
    """
    lines = source.decode("utf-8", "replace").split("\n")
    shown = escape(filename)
    parts = [_render_finding(found, lines, shown) for found in verdict.findings]
    return "\n".join([*parts, _render_sum(verdict)])


def escape(text: str) -> str:
    """Return `text` with everything but plain printable characters as escapes."""
    return "".join(_escape_char(char) for char in text)


def _escape_char(char: str) -> str:
    if char == "\t":
        return "    "
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}"


def _render_finding(finding: Finding, lines: list[str], filename: str) -> str:
    head = (
        f"{filename}:{finding.line}:{finding.column}: {finding.severity.value}"
        f"[{finding.code}] {escape(finding.message)}"
    )
    number = str(finding.line)
    margin = " " * len(number)
    parts = [head]
    if finding.line <= len(lines) and finding.column <= finding.end_column + 1:
        quoted, caret = _quote(finding, lines[finding.line - 1])
        parts += [f" {number} | {quoted}", f" {margin} | {caret}"]
    if finding.hint:
        parts.append(f" {margin} = {escape(finding.hint)}")
    return "\n".join(parts) + "\n"


def _quote(finding: Finding, line: str) -> tuple[str, str]:
    """Return the shown part of `line` and the carets that belong under it."""
    start = finding.column - 1
    end = finding.end_column - 1 if finding.end_line == finding.line else len(line)
    first = max(start - _LEAD_CHARS, 0) if len(line) > _SHOWN_CHARS else 0
    last = min(first + _SHOWN_CHARS, len(line))
    before, marked = escape(line[first:start]), escape(line[start : min(end, last)])
    left, right = "…" if first else "", "…" if last < len(line) else ""
    quoted = left + escape(line[first:last]) + right
    carets = "^" * max(len(marked), 1)
    return quoted, " " * (len(left) + len(before)) + carets


def _render_sum(verdict: Verdict) -> str:
    errors = sum(found.severity is Severity.ERROR for found in verdict.findings)
    warnings = len(verdict.findings) - errors
    counts = f"{errors} errors, {warnings} warnings"
    level = verdict.level or "(none)"
    lines = [f"{verdict_word(verdict)} at level {level}: {counts}"]
    if not verdict.admitted and verdict.lowest_level:
        lowest = verdict.lowest_level
        lines.append(f"level {lowest} admits it: pass --level {lowest}")
    lines.append(f"source sha256 {verdict.source_digest}")
    if not verdict.admitted:
        lines.append("`stoilo explain CODE` says more about each code")
    return "\n".join(lines)
