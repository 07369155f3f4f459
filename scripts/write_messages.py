"""Write the pages' messages as a template for translators: ``stoilo.pot`` on standard output.

Run after a sentence of a page has changed: python scripts/write_messages.py > stoilo.pot
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from jinja2 import nodes

from stoilo.web.pages import open_templates
from stoilo.web.wording import forms_of

WEB = Path(__file__).resolve().parents[1] / "stoilo" / "web"
TABLES = {"LINKS", "STATES", "COPIES", "SAID", "KINDS", "SECTIONS"}
TABLES |= {"_STATES", "_ACTS", "_TERMS", "_MEASURES"}
Message = str | tuple[str, str]  # one form, or two


def in_templates() -> Iterator[tuple[Message, str]]:
    """Yield each message of the templates and where it is."""
    environment = open_templates("", {})
    for name in environment.list_templates(["html"]):
        source, _, _ = environment.loader.get_source(environment, name)  # type: ignore[union-attr]
        for line, _, found in environment.extract_translations(source):  # type: ignore[attr-defined]
            text = found[0] if isinstance(found, tuple) else found  # with its fields
            if text:  # else its words are those of a table
                yield text, f"{name}:{line}"
        for one in environment.parse(source).find_all(nodes.Filter):
            if one.name == "amount":
                yield forms_of(one.args[0].as_const()), f"{name}:{one.lineno}"


def in_code() -> Iterator[tuple[Message, str]]:
    """Yield each message of the pages' Python and where it is."""
    for file in sorted(WEB.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            where = f"{file.relative_to(WEB)}:{getattr(node, 'lineno', 0)}"
            match node:
                case ast.Call(ast.Name("gettext"), [ast.Constant(str(text))]):
                    yield text, where
                case ast.Call(ast.Name("render_amount"), [_, ast.Constant(str(noun))]):
                    yield forms_of(noun), where
                case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(
                    ast.Name(name), _, value
                ) if name in TABLES:
                    yield from ((text, where) for text in words_of(value))
                case ast.AnnAssign(ast.Name("NOUNS"), _, value):
                    for noun in ast.literal_eval(value):
                        yield forms_of(noun), where


def words_of(table: ast.AST | None) -> Iterator[str]:
    """Yield the words of a table: a dict's values, of tuples what begins as a title does."""
    parts = table.values if isinstance(table, ast.Dict) else [table]
    for part in parts:
        for one in ast.walk(part):
            match one:
                case ast.Constant(str(text)) if part is not table or text[:1].isupper():
                    yield text


def find_messages() -> dict[Message, list[str]]:
    """Return every message with the places where it is."""
    found: dict[Message, list[str]] = {}
    for message, where in [*in_templates(), *in_code()]:
        found.setdefault(message, []).append(where)
    return found


def render_pot() -> str:
    """Return the template of a catalogue."""
    head = "Content-Type: text/plain; charset=UTF-8\n"
    blocks = [f'msgid ""\nmsgstr {json.dumps(head)}\n']
    for message, places in find_messages().items():
        forms = (message,) if isinstance(message, str) else message
        ids = [json.dumps(one, ensure_ascii=False) for one in forms]
        lines = [f"#: {' '.join(places)}", "#, python-format" * ("%(" in forms[0])]
        lines += [f"msgid {ids[0]}", *(f"msgid_plural {one}" for one in ids[1:])]
        ends = ["msgstr"] if len(ids) == 1 else ["msgstr[0]", "msgstr[1]"]
        blocks.append("\n".join([*filter(None, lines), *(f'{one} ""' for one in ends)]))
    return "\n\n".join(blocks) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render_pot())
