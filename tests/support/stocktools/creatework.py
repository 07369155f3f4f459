"""BOINC's ``create_work``, played: what it reads, refuses, inserts, and how it fails.

- options of the command line hold for all workunits of a call; what a template says wins;
- ``--stdin``: a workunit a line, of at most 4,095 bytes, otherwise the tool gives up,
  and what it has inserted stays;
- workunits go in by one statement for each MB: one duplicate name, and nothing of that
  statement is stored, while what was stored before stays.

A file ``fault_create_work`` in the project makes the next call fail: ``{"rows": N}``
workunits for each statement and ``{"statements": N}`` of them before it dies.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.stocktools.database import FakeDatabase, read_clock

__all__ = ["FAULT", "main"]

FAULT: Final = "fault_create_work"
BUFFER: Final = 4096
STATEMENT_CHARS: Final = 1_000_000
XML_BYTES: Final = 65_535
NUMBERS: Final = {
    "min_quorum": 2,
    "target_nresults": 2,
    "max_error_results": 3,
    "max_total_results": 10,
    "max_success_results": 6,
    "delay_bound": 604_800,
    "priority": 0,
    "batch": 0,
}
REALS: Final = {
    "rsc_fpops_est": 3600e9,
    "rsc_fpops_bound": 86_400e9,
    "rsc_memory_bound": 5e8,
    "rsc_disk_bound": 1e9,
}
_INFO: Final = re.compile(r"<file_info>(.*?)</file_info>", re.DOTALL)
_REF: Final = re.compile(r"<file_ref>(.*?)</file_ref>", re.DOTALL)
_WORKUNIT: Final = re.compile(r"<workunit>(.*?)</workunit>", re.DOTALL)


class Refusal(Exception):
    """The tool gives up with this text on stderr."""


class BadJob(Refusal):
    """This workunit cannot be made; ``--continue_on_error`` goes on with the next."""


@dataclass
class HostFilter:
    """One workunit as far as the arguments say it."""

    app: str = ""
    name: str = ""
    template: str = ""
    result_template: str = ""
    stdin: bool = False
    goes_on: bool = False
    numbers: dict[str, float] = field(default_factory=lambda: {**NUMBERS, **REALS})
    files: list[str] = field(default_factory=list)

    def copy(self) -> HostFilter:
        """Return what a line of stdin starts from."""
        return HostFilter(
            self.app,
            "",
            self.template,
            self.result_template,
            numbers=dict(self.numbers),
            files=list(self.files),
        )

    def take(self, words: list[str], *, line: bool) -> None:
        """Read arguments, of the command line or of a line."""
        texts = {
            "appname": "app",
            "wu_name": "name",
            "wu_template": "template",
            "result_template": "result_template",
        }
        at = 0
        while at < len(words):
            name = words[at].lstrip("-")
            if not words[at].startswith("-"):
                self.files.append(words[at])
            elif name == "stdin" and not line:
                self.stdin = True
            elif name == "continue_on_error" and not line:
                self.goes_on = True
            elif name in texts and not (line and name == "appname"):
                at += 1
                setattr(self, texts[name], words[at])
            elif name in self.numbers and (not line or name == "priority"):
                at += 1
                self.numbers[name] = float(words[at])
            else:
                where = "stdin " if line else ""
                raise Refusal(f"create_work: bad {where}argument '{words[at]}'")
            at += 1


def main(arguments: list[str], root: Path) -> int:
    """Run the tool in a project; returns its exit status."""
    database = FakeDatabase.of(root)
    try:
        _work(arguments, root, database)
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        return 1
    finally:
        database.close()
    return 0


def _work(arguments: list[str], root: Path, database: FakeDatabase) -> None:
    wish = HostFilter()
    wish.take(arguments, line=False)
    app = database.row("SELECT id FROM app WHERE name = ?", wish.app)
    if app is None:
        raise Refusal("create_work: app not found")
    rows: list[dict[str, object]] = []
    fault = _take_fault(root)
    done = 0
    for number, line in enumerate(_lines(wish)):
        try:
            rows.append(_row(_wish_of(wish, line, number), int(app["id"]), root))
        except BadJob as bad:
            if not wish.goes_on:
                raise
            print(f"create_work() failed: {bad}", file=sys.stderr)
        if (rows and len(rows) >= fault.get("rows", len(rows) + 1)) or _is_full(rows):
            _insert(database, rows)
            rows, done = [], done + 1
            if done >= fault.get("statements", done + 1):
                raise Refusal("wu.insert_batch() failed: -1; size 1000000")
    if rows:
        _insert(database, rows)


def _lines(wish: HostFilter) -> list[str]:
    if not wish.stdin:
        return [""]
    lines = sys.stdin.read().splitlines(keepends=True)
    for number, line in enumerate(lines):
        if len(line.encode()) >= BUFFER - 1:
            return [*lines[:number], "\0"]
    return lines


def _wish_of(wish: HostFilter, line: str, number: int) -> HostFilter:
    if line == "\0":
        raise Refusal("fgets() buffer was too small")
    if not wish.stdin:
        return wish
    one = wish.copy()
    one.take(shlex.split(line), line=True)
    one.name = one.name or f"{wish.name}_{number}"
    return one


def _take_fault(root: Path) -> dict[str, int]:
    path = root / FAULT
    if not path.exists():
        return {}
    found: dict[str, int] = json.loads(path.read_text())
    path.unlink()
    return found


def _is_full(rows: list[dict[str, object]]) -> bool:
    return sum(len(str(row["xml_doc"])) + 500 for row in rows) > STATEMENT_CHARS


def _insert(database: FakeDatabase, rows: list[dict[str, object]]) -> None:
    try:
        database.insert("workunit", rows)
    except database.errors as error:
        raise Refusal(f"wu.insert_batch() failed: -1\nMySQL error: {error}") from error


def _row(wish: HostFilter, app: int, root: Path) -> dict[str, object]:
    """Return the row of a workunit; raises `Refusal` as the tool gives up."""
    path = root / wish.template
    if not path.is_file():
        raise Refusal(f"Can't read WU template {wish.template}")
    if not (root / wish.result_template).is_file():
        raise Refusal(
            f"create_work: result template file {wish.result_template} doesn't exist"
        )
    numbers = dict(wish.numbers)
    description = _fill(path.read_text(), wish.files, numbers, root)
    if len(description) > XML_BYTES:
        raise BadJob(
            f"create_work: WU XML field is too long ({len(description)} bytes)"
        )
    numbers["max_success_results"] = max(
        numbers["max_success_results"], numbers["target_nresults"]
    )
    for least in ("max_success_results", "max_error_results"):
        if numbers[least] > numbers["max_total_results"]:
            raise BadJob(f"{least} > max_total_results; can't create job")
    now = read_clock(root)
    return {
        "create_time": now,
        "transition_time": now,
        "appid": app,
        "name": wish.name,
        "xml_doc": description.encode(),
        "result_template_file": wish.result_template,
        **{name: int(numbers[name]) for name in NUMBERS},
        **{name: numbers[name] for name in REALS},
    }


def _fill(
    template: str, files: list[str], numbers: dict[str, float], root: Path
) -> str:
    """Return a workunit's description: the template with the files' names in it."""
    infos, body = _INFO.findall(template), _WORKUNIT.search(template)
    if body is None:
        raise BadJob("process_input_template: bad WU template - no <workunit>")
    refs = _REF.findall(body[1])
    if len(infos) != len(files) or len(refs) != len(files):
        raise BadJob(
            f"process_input_template: {len(files)} input files given,"
            f" but template has {len(infos)}"
        )
    for name in numbers:  # what the template says wins
        said = re.search(rf"<{name}>([^<]*)</{name}>", body[1])
        if said is not None:
            numbers[name] = float(said[1])
    made = [_info(info, file, root) for info, file in zip(infos, files, strict=True)]
    named = [_ref(ref, file) for ref, file in zip(refs, files, strict=True)]
    return "".join([*made, "<workunit>\n", *named, "</workunit>"])


def _info(info: str, file: str, root: Path) -> str:
    digest = hashlib.md5(file.encode(), usedforsecurity=False).hexdigest()
    folder = f"{int(digest[1:8], 16) % 1024:x}"
    path = root / "download" / folder / file
    if not path.is_file():
        raise BadJob(f"process_input_template: md5_file {file}: can't open")
    data = path.read_bytes()
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    kept = re.sub(r"\s*<number>\d+</number>", "", info).strip()
    return (
        f"<file_info>\n    <name>{file}</name>\n"
        f"    <url>http://fake.example/download/{folder}/{file}</url>\n"
        f"    <md5_cksum>{md5}</md5_cksum>\n    <nbytes>{len(data)}</nbytes>\n"
        f"    {kept}\n</file_info>\n"
    )


def _ref(ref: str, file: str) -> str:
    kept = re.sub(r"\s*<file_number>\d+</file_number>", "", ref).strip()
    return f"<file_ref>\n    <file_name>{file}</file_name>\n    {kept}\n</file_ref>\n"
