"""BOINC's ``xadd``, played: platforms and apps of ``project.xml`` into the database."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.support.stocktools.database import FakeDatabase

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["main"]

_NAME: Final = re.compile(r"<name>(.*?)</name>")


def main(_arguments: list[str], root: Path) -> int:
    """Run the tool in a project; what is there already stays as it is."""
    text = (root / "project.xml").read_text("latin-1")
    database = FakeDatabase.of(root)
    for table in ("platform", "app"):
        for element in re.findall(f"<{table}>.*?</{table}>", text, re.DOTALL):
            name = _NAME.findall(element)[0]
            if database.row(f"SELECT id FROM {table} WHERE name = ?", name):  # noqa: S608 - our own names
                print(f"{table} {name} already in DB")
                continue
            database.insert(table, [{"name": name}])
            print(f"added {table}: ('{name}')")
    database.close()
    return 0
