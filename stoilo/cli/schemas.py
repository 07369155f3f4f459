"""JSON Schema of every file that people write for stoilo, from the types that parse them.

The published copies are in ``docs/reference/schemas``; an editor that knows them completes
and checks a policy or an opt-in file while it is written. The parsers stay the authority:
some rules (a known level, a digest's form) are theirs alone.
Source: JSON Schema 2020-12.
"""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from stoilo.core.errors import UsageError

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_ATTRIBUTES = re.compile(r"\n\s*Attributes:\n(?P<rows>.*)\Z", re.DOTALL)
_ROW = re.compile(r"^ {4}(\w+): (.*?)(?=^ {4}\w+: |\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PublishedSchema:
    """One kind of file."""

    title: str  # for people
    module: str  # where its type is; imported when asked, since it may need an extra
    type_name: str  # the type that parses it
    computed: tuple[str, ...] = ()  # fields that are set by the parser, never written


SCHEMAS: Final = {
    "policy": PublishedSchema(
        "A project's policy (TOML)",
        "stoilo.policies.policy",
        "Policy",
        ("digest", "text"),
    ),
    "level": PublishedSchema(
        "A level, part of the verifier's release (TOML)",
        "stoilo.core.levels",
        "Level",
        ("digest", "libraries"),
    ),
    "library": PublishedSchema(
        "A described library, a target of the policy role (TOML)",
        "stoilo.core.libraries",
        "Library",
        ("digest",),
    ),
    "opt-in": PublishedSchema(
        "A volunteer's opt-in (TOML)",
        "stoilo.executor.verifier.installation",
        "OptInFile",
    ),
    "review": PublishedSchema(
        "What a reviewer signs (JSON, the payload of a DSSE envelope)",
        "stoilo.executor.verifier.statements",
        "Review",
    ),
}
"""Kind of file → where its type is."""


def make_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of one kind of file; raises ``STO-U003``."""
    if kind not in SCHEMAS:
        raise UsageError(
            "STO-U003",
            f"there is no schema {kind[:40]!r}",
            hint=f"schemas are {', '.join(SCHEMAS)}",
        )
    published = SCHEMAS[kind]
    root = getattr(importlib.import_module(published.module), published.type_name)
    (reference,), parts = msgspec.json.schema_components(
        [root], ref_template="#/$defs/{name}"
    )
    whole = parts.pop(reference["$ref"].rpartition("/")[2])
    for name in published.computed:
        whole["properties"].pop(name)
    for part in (whole, *parts.values()):
        _describe(part)
        _anchor(part)
    head = {"$schema": DIALECT, **whole, "title": published.title}
    return head | ({"$defs": parts} if parts else {})


def render_schema(kind: str) -> str:
    """Return `make_schema` as text, as it is published."""
    text = msgspec.json.encode(make_schema(kind))
    return msgspec.json.format(text, indent=2).decode() + "\n"


def _describe(part: dict[str, Any]) -> None:
    text = inspect.cleandoc(part.get("description", ""))
    match = _ATTRIBUTES.search(text)
    if match is None:
        part["description"] = text
        return
    part["description"] = text[: match.start()].strip()
    for name, said in _ROW.findall(match["rows"]):
        if name in part.get("properties", {}):
            inner = part["properties"][name]
            part["properties"][name] = inner | {"description": " ".join(said.split())}


def _anchor(part: Any) -> None:  # noqa: ANN401 - any JSON
    if isinstance(part, dict):
        pattern = part.get("pattern")
        if isinstance(pattern, str):
            part["pattern"] = pattern.replace(r"\A", "^").replace(r"\Z", "$")
        for inner in part.values():
            _anchor(inner)
