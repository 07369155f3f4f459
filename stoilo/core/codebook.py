"""The codebook: what each stable error code means and what to do about it.

The entries are data, one TOML file an area letter, so that the text a user reads and the page
in the reference cannot drift apart. Trusted input: the files ship inside the package.
"""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from importlib import resources

from stoilo.core.errors import UsageError

CODE_PATTERN = re.compile(r"STO-[A-Z][0-9]{3}")


@dataclass(frozen=True, slots=True)
class CodeEntry:
    """One code's page."""

    code: str  # for example `STO-D002`
    title: str  # what happened, in a few words
    why: str  # the reason such a rule or failure exists
    action: str  # what the reader should do next


def parse_codes(text: str) -> dict[str, CodeEntry]:
    """Parse one area file: a table per code with ``title``, ``why``, ``action``."""
    tables = tomllib.loads(text)
    return {code: CodeEntry(code=code, **fields) for code, fields in tables.items()}


@functools.cache
def load_codebook() -> dict[str, CodeEntry]:
    """Return every known code, in order."""
    book: dict[str, CodeEntry] = {}
    folder = resources.files("stoilo.core") / "codes"
    for page in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if page.name.endswith(".toml"):
            book.update(parse_codes(page.read_text(encoding="utf-8")))
    return dict(sorted(book.items()))


def find_entry(code: str) -> CodeEntry:
    """Return the page of `code` (any letter case), or raise ``STO-U003``."""
    entry = load_codebook().get(code.strip().upper())
    if entry is None:
        raise UsageError(
            "STO-U003",
            f"no such code: {code[:40]!r}",
            hint="codes look like STO-D002; `stoilo explain` without one lists them",
        )
    return entry


def render_entry(entry: CodeEntry) -> str:
    """Return the page as plain text."""
    return f"{entry.code}  {entry.title}\n\nWhy:  {entry.why}\nDo:   {entry.action}\n"
