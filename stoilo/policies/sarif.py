"""Verdicts as SARIF 2.1.0, the form that code hosts and editors read.

One result for each finding of the other formats, so that counts and exit code agree. What
viewers interpret (placeholders in braces, links in brackets) is written so that hostile
source quoted in a message stays plain text.
Source: OASIS, Static Analysis Results Interchange Format 2.1.0, errata 01: §3.11
(messages), §3.14 (runs), §3.27 (results), §3.30 (regions).
"""

from __future__ import annotations

import hashlib
import re
from importlib import metadata
from pathlib import PurePath
from typing import Final
from urllib.parse import quote

import msgspec

from stoilo.core.codebook import CodeEntry, load_codebook
from stoilo.core.types import Finding, Severity, Verdict
from stoilo.policies.render import escape, verdict_word

__all__ = ["SARIF_SCHEMA", "SARIF_VERSION", "render_sarif"]

SARIF_VERSION: Final = "2.1.0"
SARIF_SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/"
    "sarif-schema-2.1.0.json"
)
_STDIN: Final = "stdin"
_EXIT_REFUSED: Final = 3
_LINK = re.compile(r"\[(?=[^\]]*\]\()")


class _Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of SARIF objects: camel-case names, absent where nothing is known."""


class _Message(_Record, frozen=True):
    text: str


class _Place(_Record, frozen=True):
    uri: str


class _Artifact(_Record, frozen=True):
    location: _Place
    length: int
    hashes: dict[str, str]
    source_language: str


class _Rule(_Record, frozen=True):
    id: str
    short_description: _Message
    full_description: _Message
    help: _Message


class _Region(_Record, frozen=True):
    start_line: int
    start_column: int
    end_line: int
    end_column: int


class _Physical(_Record, frozen=True):
    artifact_location: _Place
    region: _Region


class _Location(_Record, frozen=True):
    physical_location: _Physical


class _Result(_Record, frozen=True):
    rule_id: str
    rule_index: int
    level: str
    message: _Message
    locations: tuple[_Location, ...]
    partial_fingerprints: dict[str, str]
    properties: dict[str, str] = {}


class _Driver(_Record, frozen=True):
    name: str
    version: str
    rules: tuple[_Rule, ...]


class _Tool(_Record, frozen=True):
    driver: _Driver


class _Invocation(_Record, frozen=True):
    execution_successful: bool
    exit_code: int


class _Run(_Record, frozen=True):
    tool: _Tool
    column_kind: str
    invocations: tuple[_Invocation, ...]
    artifacts: tuple[_Artifact, ...]
    results: tuple[_Result, ...]
    properties: dict[str, str]


class _Log(msgspec.Struct, frozen=True):
    schema: str = msgspec.field(name="$schema")
    version: str
    runs: tuple[_Run, ...]


def render_sarif(verdict: Verdict, source: bytes, filename: str) -> str:
    """Return the verdict as one SARIF log with one run.

    Args:
        verdict: of the gate.
        source: the bytes that were judged.
        filename: as the user wrote it; ``-`` for stdin.
    """
    place = _Place(_uri(filename))
    codes = sorted({found.code for found in verdict.findings})
    run = _Run(
        tool=_Tool(_Driver("stoilo", _version(), tuple(map(_rule, codes)))),
        column_kind="unicodeCodePoints",
        invocations=(
            _Invocation(
                execution_successful=True,
                exit_code=0 if verdict.admitted else _EXIT_REFUSED,
            ),
        ),
        artifacts=(
            _Artifact(place, len(source), {"sha-256": verdict.source_digest}, "python"),
        ),
        results=tuple(_result(found, codes, place) for found in verdict.findings),
        properties={
            "verdict": verdict_word(verdict),
            "level": verdict.level,
            "lowestLevel": verdict.lowest_level,
            "policyDigest": verdict.policy_digest,
        },
    )
    return msgspec.json.encode(_Log(SARIF_SCHEMA, SARIF_VERSION, (run,))).decode()


def _rule(code: str) -> _Rule:
    page = load_codebook().get(code) or CodeEntry(code, code, code, code)
    return _Rule(code, _message(page.title), _message(page.why), _message(page.action))


def _result(found: Finding, codes: list[str], place: _Place) -> _Result:
    region = _Region(found.line, found.column, found.end_line, found.end_column)
    level = "error" if found.severity is Severity.ERROR else "warning"
    return _Result(
        rule_id=found.code,
        rule_index=codes.index(found.code),
        level=level,
        message=_message(found.message),
        locations=(_Location(_Physical(place, region)),),
        partial_fingerprints={"stoiloFinding/v1": _fingerprint(found)},
        properties={"hint": escape(found.hint)} if found.hint else {},
    )


def _fingerprint(found: Finding) -> str:
    """Return what stays the same when lines are added above the finding."""
    text = f"{found.code}\n{found.column}\n{found.message}"
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def _message(text: str) -> _Message:
    """Return untrusted text without placeholders (§3.11.5) or links (§3.11.6)."""
    braced = escape(text).replace("{", "{{").replace("}", "}}")
    return _Message(_LINK.sub(r"\\[", braced) or "-")


def _uri(filename: str) -> str:
    """Return `filename` as a URI reference (§3.10): relative ones stay relative."""
    if filename == "-":
        return _STDIN
    path = PurePath(filename)
    if path.is_absolute():
        return path.as_uri()
    return quote(path.as_posix(), errors="surrogateescape")


def _version() -> str:
    """Return the version of this package."""
    return metadata.version("stoilo")
