"""Verdicts as text with carets, as JSON (design §7), and as SARIF 2.1.0.

Quoted source is hostile to terminals as well: every character that is not plainly
printable is shown as an escape, and long lines are shown around the finding.
"""

from __future__ import annotations

import hashlib
import json
import re
from importlib import metadata
from pathlib import PurePath
from typing import Final
from urllib.parse import quote

import msgspec

from stoilo.core.codebook import CodeEntry, load_codebook
from stoilo.core.types import Finding, Severity, Verdict

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
        "findings": msgspec.to_builtins(verdict.findings),
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


# Verdicts as SARIF 2.1.0, the form that code hosts and editors read -------------------
#
# One result for each finding of the other formats, so that counts and exit code agree. What
# viewers interpret (placeholders in braces, links in brackets) is written so that hostile
# source quoted in a message stays plain text.
# Source: OASIS, Static Analysis Results Interchange Format 2.1.0, errata 01: §3.11
# (messages), §3.14 (runs), §3.27 (results), §3.30 (regions).


SARIF_VERSION: Final = "2.1.0"
SARIF_SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/"
    "sarif-schema-2.1.0.json"
)
_STDIN: Final = "stdin"
_EXIT_REFUSED: Final = 3
_LINK = re.compile(r"\[(?=[^\]]*\]\()")


def render_sarif(verdict: Verdict, source: bytes, filename: str) -> str:
    """Return the verdict as one SARIF log with one run.

    Args:
        verdict: of the gate.
        source: the bytes that were judged.
        filename: as the user wrote it; ``-`` for stdin.
    """
    place = {"uri": _uri(filename)}
    codes = sorted({found.code for found in verdict.findings})
    driver = {
        "name": "stoilo",
        "version": metadata.version("stoilo"),
        "rules": [_rule(code) for code in codes],
    }
    invocation = {
        "executionSuccessful": True,
        "exitCode": 0 if verdict.admitted else _EXIT_REFUSED,
    }
    artifact = {
        "location": place,
        "length": len(source),
        "hashes": {"sha-256": verdict.source_digest},
        "sourceLanguage": "python",
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "artifacts": [artifact],
        "results": [_result(found, codes, place) for found in verdict.findings],
        "properties": {
            "verdict": verdict_word(verdict),
            "level": verdict.level,
            "lowestLevel": verdict.lowest_level,
            "policyDigest": verdict.policy_digest,
        },
    }
    log = {"$schema": SARIF_SCHEMA, "version": SARIF_VERSION, "runs": [run]}
    return json.dumps(log, ensure_ascii=False)


def _rule(code: str) -> dict[str, object]:
    page = load_codebook().get(code) or CodeEntry(code, code, code, code)
    return {
        "id": code,
        "shortDescription": _message(page.title),
        "fullDescription": _message(page.why),
        "help": _message(page.action),
    }


def _result(
    found: Finding, codes: list[str], place: dict[str, str]
) -> dict[str, object]:
    region = {
        "startLine": found.line,
        "startColumn": found.column,
        "endLine": found.end_line,
        "endColumn": found.end_column,
    }
    return {
        "ruleId": found.code,
        "ruleIndex": codes.index(found.code),
        "level": found.severity.value,  # SARIF has the same two words
        "message": _message(found.message),
        "locations": [
            {"physicalLocation": {"artifactLocation": place, "region": region}}
        ],
        "partialFingerprints": {"stoiloFinding/v1": _fingerprint(found)},
        "properties": {"hint": escape(found.hint)} if found.hint else {},
    }


def _fingerprint(found: Finding) -> str:
    """Return what stays the same when lines are added above the finding."""
    text = f"{found.code}\n{found.column}\n{found.message}"
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def _message(text: str) -> dict[str, str]:
    """Return untrusted text without placeholders (§3.11.5) or links (§3.11.6)."""
    braced = escape(text).replace("{", "{{").replace("}", "}}")
    return {"text": _LINK.sub(r"\\[", braced) or "-"}


def _uri(filename: str) -> str:
    """Return `filename` as a URI reference (§3.10): relative ones stay relative."""
    if filename == "-":
        return _STDIN
    path = PurePath(filename)
    if path.is_absolute():
        return path.as_uri()
    return quote(path.as_posix(), errors="surrogateescape")
