"""Catalogues made on the spot, and what of a page is in none."""

from __future__ import annotations

import re
import struct
from html.parser import HTMLParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import jinja2

Message = str | tuple[str, str]
ACCENTS = str.maketrans("aeiouAEIOU", "áéíóúÁÉÍÓÚ")
FIELD = re.compile(r"%(?:\([a-z_0-9A-Z]+\)s|%)")
ATTRIBUTE = re.compile(r"[a-z/]*/|bad|pure")  # of addresses, a class, a level
SILENT = frozenset({"script", "style"})
SHOWN = frozenset(
    {
        "aria-label",
        "alt",
        "placeholder",
        "title",
        "data-said",
        "data-over",
        "data-failed",
    }
)


def pretend(message: str) -> str:
    """Return a pretended translation: in brackets, with accents, its fields as they were."""
    fields = FIELD.findall(message)
    parts = [part.translate(ACCENTS) for part in FIELD.split(message)]
    filled = "".join(a + b for a, b in zip(parts, [*fields, ""], strict=True))
    return f"⟦{filled}⟧"


def pretend_all(messages: Iterable[Message]) -> dict[str, str]:
    """Return a catalogue of pretended translations, as its file has them."""
    found = {"": "Content-Type: text/plain; charset=UTF-8\n"}
    for one in messages:
        forms = (one,) if isinstance(one, str) else one
        found["\0".join(forms)] = "\0".join(map(pretend, forms))
    return found


def write_catalogue(folder: Path, name: str, texts: Mapping[str, str]) -> None:
    """Write a catalogue as `msgfmt` does (GNU gettext, "The Format of GNU MO Files")."""
    pairs = sorted((one.encode(), other.encode()) for one, other in texts.items())
    count, start = len(pairs), 28 + 16 * len(pairs)
    tables, data = [b"", b""], b""
    for column in (0, 1):
        for pair in pairs:
            tables[column] += struct.pack("<II", len(pair[column]), start + len(data))
            data += pair[column] + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, start)
    place = folder / name / "LC_MESSAGES"
    place.mkdir(parents=True)
    (place / "stoilo.mo").write_bytes(head + tables[0] + tables[1] + data)


class Texts(HTMLParser):
    """What of a page is read or heard, piece by piece; `data` where it is no sentence."""

    def __init__(self, html: str, data: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self._data, self._open = SILENT | data, list[str]()
        self.found: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in SHOWN and value]
        if tag in self._data:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if not self._open:
            self.found.append(data)


def outside(text: str) -> str:
    """Return what of a text stands in no brackets."""
    depth, left = 0, ""
    for one in text:
        depth += (one == "⟦") - (one == "⟧")
        left += one if depth == 0 and one != "⟧" else " " if depth else ""
    return left


def unmarked(environment: jinja2.Environment, source: str) -> list[str]:
    """Return the English of a template that no catalogue could translate."""
    from jinja2 import nodes  # noqa: PLC0415 - only here

    tree = environment.parse(source)
    html = "\x01".join(one.data for one in tree.find_all(nodes.TemplateData))
    found = Texts(html, frozenset({"code"})).found
    for output in tree.find_all(nodes.Output):
        found += [text for one in output.nodes for text in _said(one)]
    words = [text.strip() for text in found if re.search(r"[A-Za-z]{2,}", text)]
    return [one for one in words if not ATTRIBUTE.fullmatch(one)]


def _said(node: object) -> Iterable[str]:
    """Yield the words that an expression may put on a page as they stand there."""
    from jinja2 import nodes  # noqa: PLC0415

    match node:
        case nodes.Const(value=str(text)):
            yield text
        case nodes.CondExpr():
            yield from (*_said(node.expr1), *_said(node.expr2))
        case nodes.Or():
            yield from (*_said(node.left), *_said(node.right))
        case nodes.MarkSafeIfAutoescape() | nodes.MarkSafe():
            yield from _said(node.expr)
        case nodes.Call(node=nodes.Name(name="_" | "gettext" | "ngettext")):
            return
        case nodes.Call():
            for one in node.args:
                yield from (text for text in _said(one) if text[:1].isupper())
