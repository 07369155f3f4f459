"""BOINC's little XML: elements, text, CDATA. Bounded, total, nothing else.

BOINC writes and reads a subset without attributes that matter, and not always strictly,
so a strict parser would refuse real clients while a general one would accept document
types and entities. This one accepts the subset, never expands anything but the five
named and the numeric character references, and ends in an `Element` or ``STO-X030``.
Runs in time linear in the input. Both the project's side and the volunteer's use it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from stoilo.core.errors import TrustError

_TAG = re.compile(
    r"(?P<close>/?)(?P<name>[A-Za-z_][A-Za-z0-9_.-]{0,63})"
    r"(?:\s+[A-Za-z_][A-Za-z0-9_.:-]{0,63}\s*=\s*(?:\"[^\"<]*\"|'[^'<]*'))*"
    r"\s*(?P<empty>/?)"
)
_REFERENCE = re.compile(
    r"&(?:#([0-9]{1,7})|#x([0-9A-Fa-f]{1,6})|(lt|gt|amp|quot|apos));"
)
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
_UNICODE = range(1, 0x110000)
_SURROGATES = range(0xD800, 0xE000)
_TAG_CHARS = 1024
_LARGEST = 1e18


@dataclass(frozen=True, slots=True)
class XmlBounds:
    """What a document may hold: bytes, levels of nesting, elements."""

    document_bytes: int
    depth: int = 16
    elements: int = 50_000


@dataclass(frozen=True, slots=True)
class Element:
    """One element; `text` is its own character data, stripped."""

    tag: str
    text: str = ""
    children: tuple[Element, ...] = ()

    def find(self, tag: str) -> Element | None:
        """Return the first child called `tag`, None if there is none."""
        return next((child for child in self.children if child.tag == tag), None)

    def every(self, tag: str) -> tuple[Element, ...]:
        """Return all children called `tag`, in order."""
        return tuple(child for child in self.children if child.tag == tag)

    def string(self, tag: str, *, longest: int = 256) -> str:
        """Return the text of child `tag`, empty if absent; longer than that refuses."""
        child = self.find(tag)
        text = child.text if child is not None else ""
        if len(text) > longest:
            raise TrustError("STO-X030", f"<{tag}> is longer than {longest} characters")
        return text

    def number(self, tag: str, default: float = 0.0) -> float:
        """Return child `tag` as a finite number, `default` if absent or empty."""
        text = self.string(tag, longest=64)
        if not text:
            return default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or abs(value) > _LARGEST:
            raise TrustError("STO-X030", f"<{tag}> is not a usable number")
        return value

    def integer(self, tag: str, default: int = 0) -> int:
        """Return child `tag` as an integer (BOINC writes some as 1.000000)."""
        return int(self.number(tag, default))

    def flag(self, tag: str) -> bool:
        """Return whether child `tag` is there and not 0 (BOINC's booleans)."""
        child = self.find(tag)
        return child is not None and child.text.strip() != "0"


def escape(text: str) -> str:
    """Return `text` as XML character data; control characters become ``?``."""
    clean = _CONTROL.sub("?", text)
    return clean.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def element(tag: str, *inside: str, **leaves: object) -> str:
    """Return an element with some leaves by name, and with what is XML already."""
    named = "".join(leaf(name, value) for name, value in leaves.items())
    return f"<{tag}>{named}{''.join(inside)}</{tag}>"


def leaf(tag: str, value: object) -> str:
    """Return one leaf element."""
    return f"<{tag}>{escape(str(value))}</{tag}>"


def render_xml(read: Element) -> str:
    """Return an element as text that `parse_xml` reads as the same, without attributes."""
    return element(read.tag, escape(read.text), *map(render_xml, read.children))


@dataclass(slots=True)
class _Open:
    """An element whose end tag has not been seen."""

    tag: str
    text: list[str] = field(default_factory=list)
    children: list[Element] = field(default_factory=list)

    def close(self) -> Element:
        """Return the finished element."""
        return Element(self.tag, "".join(self.text).strip(), tuple(self.children))


class _Reader:
    """One pass over one document."""

    def __init__(self, text: str, bounds: XmlBounds) -> None:
        self._text = text
        self._bounds = bounds
        self._at = 0
        self._count = 0
        self._stack = [_Open("")]

    def read(self) -> Element:
        """Return the one root element."""
        while (start := self._text.find("<", self._at)) >= 0:
            self._take_text(self._text[self._at : start])
            self._at = start
            self._take_markup()
        self._take_text(self._text[self._at :])
        root = self._stack[0]
        if len(self._stack) != 1 or len(root.children) != 1:
            raise TrustError("STO-X030", "the document is not one complete element")
        return root.children[0]

    def _take_text(self, raw: str) -> None:
        """Add character data to the open element; none may stand outside the root."""
        if len(self._stack) == 1:
            if raw.strip():
                raise TrustError("STO-X030", "there is text outside the document")
        elif raw:
            self._stack[-1].text.append(_REFERENCE.sub(_dereference, raw))

    def _take_markup(self) -> None:
        """Read one comment, CDATA section, declaration or tag at the position."""
        text, at = self._text, self._at
        if text.startswith("<!--", at):
            self._until("-->")
        elif text.startswith("<![CDATA[", at):
            data = self._until("]]>")[9:]
            if len(self._stack) == 1:
                raise TrustError("STO-X030", "there is text outside the document")
            self._stack[-1].text.append(data)
        elif text.startswith("<?xml", at) and not self._count:
            self._until("?>")
        else:
            self._take_tag(self._until(">")[1:])

    def _until(self, end: str) -> str:
        """Return the text up to `end` and step behind it."""
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise TrustError("STO-X030", "the document ends in the middle")
        piece = self._text[self._at : stop]
        self._at = stop + len(end)
        return piece

    def _take_tag(self, body: str) -> None:
        """Open or close an element; document types and the like do not match."""
        match = _TAG.fullmatch(body) if len(body) <= _TAG_CHARS else None
        if match is None or (match["close"] and match["empty"]):
            raise TrustError(
                "STO-X030", "the document holds markup that is not allowed"
            )
        if match["close"]:
            self._close(match["name"])
            return
        self._count += 1
        if self._count > self._bounds.elements:
            raise TrustError("STO-X030", "the document holds too many elements")
        if len(self._stack) > self._bounds.depth:
            raise TrustError("STO-X030", "the document is nested too deeply")
        self._stack.append(_Open(match["name"]))
        if match["empty"]:
            self._close(match["name"])

    def _close(self, name: str) -> None:
        """Close the open element, which must have that name."""
        if len(self._stack) == 1 or self._stack[-1].tag != name:
            raise TrustError("STO-X030", f"</{name}> closes nothing")
        done = self._stack.pop().close()
        self._stack[-1].children.append(done)


def parse_xml(data: bytes, bounds: XmlBounds) -> Element:
    """Return the root element of untrusted `data`.

    Bytes that are not UTF-8 become replacement characters (old clients send Latin-1).

    Raises:
        TrustError: ``STO-X030``.
    """
    if len(data) > bounds.document_bytes:
        raise TrustError("STO-X030", "the document is too large")
    text = data.decode("utf-8", "replace")
    if "\0" in text:
        raise TrustError("STO-X030", "the document holds NUL characters")
    return _Reader(text, bounds).read()


def _dereference(match: re.Match[str]) -> str:
    """Return the character that a reference stands for, ``?`` for impossible ones."""
    decimal, hexadecimal, name = match.groups()
    if name:
        return _NAMED[name]
    value = int(decimal) if decimal else int(hexadecimal, 16)
    if value not in _UNICODE or value in _SURROGATES or _CONTROL.match(chr(value)):
        return "?"
    return chr(value)
