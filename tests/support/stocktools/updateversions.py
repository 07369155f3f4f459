"""BOINC's ``update_versions``, played: app versions below ``apps`` into the database.

It takes ``.sig`` files as they lie there, and a version that is known is left alone. A file
without a signature, or another one under a name that was given out, ends it, and as the
original does it ends with 0 and a word.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Final

from tests.support.stocktools.database import FakeDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["main"]

_VERSION: Final = re.compile(r"(\d+)\.(\d\d)")
_LISTED: Final = re.compile(r"<physical_name>([^<]+)</physical_name>(<main_program/>)?")


class GivesUp(Exception):
    """The tool ends with this text, and with 0."""


def main(arguments: list[str], root: Path) -> int:
    """Run the tool in a project; returns its exit status."""
    if arguments != ["--noconfirm"]:
        print(f"unknown arg {' '.join(arguments)}")
        return 0
    database = FakeDatabase.of(root)
    try:
        for place in _places(root / "apps"):
            _add(place, root, database)
    except GivesUp as last:
        print(last)
    finally:
        database.close()
    return 0


def _places(apps: Path) -> Iterator[Path]:
    for place in sorted(apps.glob("*/*/*")):
        if place.name[0] != "." and _VERSION.fullmatch(place.parts[-2]):
            yield place


def _number_of(database: FakeDatabase, table: str, name: str) -> int:
    found = database.row(f"SELECT id FROM {table} WHERE name = ?", name)  # noqa: S608 - our own names
    if found is None:
        raise GivesUp(f"{table} not found: {name}")
    return int(found["id"])


def _add(place: Path, root: Path, database: FakeDatabase) -> None:
    app, version = place.parts[-3:-1]
    platform, _, plan = place.name.partition("__")
    match = _VERSION.fullmatch(version)
    assert match is not None
    row: dict[str, object] = {
        "appid": _number_of(database, "app", app),
        "version_num": int(match[1]) * 100 + int(match[2]),
        "platformid": _number_of(database, "platform", platform),
        "plan_class": plan,
    }
    known = database.row(
        "SELECT id FROM app_version WHERE appid = ? AND version_num = ?"
        " AND platformid = ? AND plan_class = ?",
        *row.values(),
    )
    if known is not None:
        print("         (already in database)")
        return
    print(f"Found new app version for: {app} {version} {place.name}")
    database.insert("app_version", [{**row, "xml_doc": _describe(place, root)}])


def _describe(place: Path, root: Path) -> bytes:
    """Return what the scheduler sends of a version; its files go out."""
    described = (place / "version.xml").read_text()
    infos = refs = ""
    for name, main_program in _LISTED.findall(described):
        path = place / name
        if not path.exists():
            raise GivesUp(f"   File {name} is listed in version.xml but not present")
        signature = path.with_name(f"{name}.sig")
        if not signature.exists():
            raise GivesUp(
                f"   Error: no .sig file for {name}, and no code signing private key"
            )
        _hand_out(path, root / "download" / name)
        infos += (
            f"<file_info><name>{name}</name><file_signature>{signature.read_text()}"
            f"</file_signature><nbytes>{path.stat().st_size}</nbytes></file_info>"
        )
        refs += f"<file_ref><file_name>{name}</file_name>{main_program}</file_ref>"
    api = re.findall("<api_version>.*</api_version>", described)[0]
    return f"{infos}<app_version>{api}{refs}</app_version>".encode()


def _hand_out(path: Path, target: Path) -> None:
    if target.exists() and target.read_bytes() != path.read_bytes():
        raise GivesUp(f"Error: files {path} and {target} differ.")
    shutil.copy(path, target)
