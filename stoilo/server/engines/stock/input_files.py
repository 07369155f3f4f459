"""The input files of a project's workunits, and the templates that name them.

Files come before the row that needs them and go after the last such row; `turn` keeps the
two from overtaking each other.

A template says what every workunit of its kind has in common: the open names of its files,
what a result may cost, and to whom it may go. Equal templates have equal names, so a few
files serve for all tasks. It never says how many results there are or must agree: what a
template says wins over ``create_work``'s command line without a word, so a quorum in one
would silently replace the researcher's.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, insert, select, update

from stoilo.core.boinc.xml import escape
from stoilo.executor.verifier.trust import parse_release_pack
from stoilo.executor.verifier.workunit import RELEASE, RESULT
from stoilo.server.db.bulk import select_in
from stoilo.server.engines.stock.creator import Draft, stdin_line
from stoilo.server.engines.stock.project import boinc_tables, tables
from stoilo.server.engines.stock.project.boinc_tables import renew_description
from stoilo.server.engines.stock.project.directory import fan_out
from stoilo.server.engines.stock.project.levels import NO_BATCH, batch_of
from stoilo.server.engines.stock.staging import Stage, StagedFile
from stoilo.server.engines.workunits import WorkunitFile

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection, Row

    from stoilo.server.engines.stock.project.database import Database, Settings
    from stoilo.server.engines.stock.project.directory import StockProject
    from stoilo.server.engines.workunits import WorkunitSpec


_DIGITS: Final = 2
_NAME_DIGITS: Final = 24  # BOINC stores 63 characters of a result template's path
_DISK_BYTES: Final = 1_000_000_000
_MEMORY_BYTES: Final = 500_000_000


@dataclass(frozen=True, slots=True)
class InputSlot:
    """A place for an input file: its open name, and whether hosts keep it."""

    open_name: str
    sticky: bool


@dataclass(frozen=True, slots=True)
class Template:
    """A template: its file's name below ``templates``, and the text."""

    name: str
    text: str


def input_template(spec: WorkunitSpec, slots: tuple[InputSlot, ...]) -> Template:
    """Return the input template for a workunit with files for `slots`, in order.

    Costs are rounded up to two digits, or each task would have a template of its own.
    """
    infos = "".join(_file_info(number, slot) for number, slot in enumerate(slots))
    refs = "".join(_file_ref(number, slot) for number, slot in enumerate(slots))
    costs = (
        ("rsc_fpops_est", spec.fpops_est),
        ("rsc_fpops_bound", spec.fpops_bound),
        ("rsc_memory_bound", spec.memory_bound or _MEMORY_BYTES),
        ("rsc_disk_bound", spec.disk_bound or _DISK_BYTES),
    )
    lines = "".join(
        f"    <{tag}>{_round_up(value):.6e}</{tag}>\n" for tag, value in costs
    )
    batch = batch_of(reviewed=spec.reviewed, public=spec.public_source)
    if batch != NO_BATCH:
        lines += f"    <batch>{batch}</batch>\n"
    text = (
        f"<input_template>\n{infos}<workunit>\n{refs}{lines}</workunit>\n"
        "</input_template>\n"
    )
    return Template(f"stoilo_in_{_digest(text)}", text)


def result_template(max_bytes: int) -> Template:
    """Return the result template for one result file of at most so many bytes."""
    text = (
        "<output_template>\n<file_info>\n    <name><OUTFILE_0/></name>\n"
        "    <generated_locally/>\n    <upload_when_present/>\n"
        f"    <max_nbytes>{max_bytes}</max_nbytes>\n    <url><UPLOAD_URL/></url>\n"
        "</file_info>\n<result>\n    <file_ref>\n"
        "        <file_name><OUTFILE_0/></file_name>\n"
        f"        <open_name>{RESULT}</open_name>\n    </file_ref>\n</result>\n"
        "</output_template>\n"
    )
    return Template(f"stoilo_out_{_digest(text)}", text)


def _file_info(number: int, slot: InputSlot) -> str:
    sticky = "    <sticky/>\n" if slot.sticky else ""
    return (
        f"<file_info>\n    <number>{number}</number>\n{sticky}"
        "    <no_delete/>\n</file_info>\n"
    )


def _file_ref(number: int, slot: InputSlot) -> str:
    return (
        f"    <file_ref>\n        <file_number>{number}</file_number>\n"
        f"        <open_name>{escape(slot.open_name)}</open_name>\n    </file_ref>\n"
    )


def _round_up(value: float) -> float:
    step = 10.0 ** (math.floor(math.log10(value)) - _DIGITS + 1)
    return math.ceil(value / step) * step


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_NAME_DIGITS]


_SECRET: Final = "secret"  # noqa: S105 - a row's name
_RELEASE: Final = "release"


class InputFiles:
    """One project's input files.

    Args:
        project: as it lies on the disk.
        settings: of it; holds the secret that files' names follow from, and the release.

    Attributes:
        turn: to be held from `draft` until the rows are stored, and while removing.
        release: what goes out with every workunit, None before `set_release`.

    Raises:
        InternalError: ``STO-R030``.
    """

    def __init__(self, project: StockProject, settings: Settings) -> None:
        self._settings = settings
        self._templates = project.templates
        settings.write(_SECRET, secrets.token_hex(32), replace=False)
        self.stage = Stage(
            project.download,
            project.fanout,
            bytes.fromhex(settings.read(_SECRET)),
            beside=(project.templates,),
        )
        self.turn = threading.Lock()
        self.release = _parse_release(settings.read(_RELEASE))
        self._retained: frozenset[str] = frozenset()

    def draft(self, specs: Sequence[WorkunitSpec]) -> list[Draft]:
        """Stage workunits' files durably; return what their rows will say.

        Raises:
            TrustError: ``STO-E002``, ``STO-B004``.
            InternalError: ``STO-R030``.
        """
        drafts = [self._draft(spec) for spec in specs]
        self.stage.sync()
        return drafts

    def set_release(self, bundle: bytes) -> None:
        """Store the release metadata that goes out from now on.

        Raises:
            TrustError: ``STO-K013`` when it is no release.
            InternalError: ``STO-R030``.
        """
        parse_release_pack(bundle)
        digest = hashlib.sha256(bundle).hexdigest()
        with self.turn:
            file = WorkunitFile(RELEASE, digest, bundle, sticky=True)
            staged = self.stage.add([file])[digest]
            self.stage.sync()
            text = f"{staged.name} {staged.size} {staged.md5}"
            self._settings.write(_RELEASE, text)
            self.release = staged

    def retain(self, digests: Collection[str]) -> None:
        """Keep files of these digests though no workunit needs them."""
        self._retained = frozenset(map(self.stage.name_of, digests))

    def remove(self, names: Collection[str]) -> None:
        """Remove files that no workunit claims; those that are to stay, stay."""
        current = {self.release.name} if self.release is not None else set()
        self.stage.remove(sorted(set(names) - self._retained - current))

    def remove_strays(self, database: Database) -> None:
        """Remove what no row has ever claimed, or a crash has left."""
        with self.turn:
            self.remove(_stray_files(database, self.stage.names()))
            self.stage.remove_drafts()

    def _draft(self, spec: WorkunitSpec) -> Draft:
        staged = self.stage.add(spec.files)
        names = [staged[file.digest].name for file in spec.files]
        slots = [InputSlot(file.open_name, file.sticky) for file in spec.files]
        release = self.release.name if self.release is not None else ""
        if release:
            names.append(release)
            slots.append(InputSlot(RELEASE, sticky=True))
        inputs = input_template(spec, tuple(slots))
        outputs = result_template(spec.result_max_bytes)
        for template in (inputs, outputs):
            self.stage.write(self._templates / template.name, template.text)
        line = stdin_line(spec, (inputs.name, outputs.name), names)
        return Draft(spec, line, tuple(names), release)


def _parse_release(text: str) -> StagedFile | None:
    if not text:
        return None
    name, size, md5 = text.split()
    return StagedFile(name, int(size), md5)


_AT_ONCE: Final = 200
_INFO: Final = re.compile(r"<file_info>.*?</file_info>", re.DOTALL)


def replace_file(description: str, old: str, new: StagedFile, url: str) -> str:
    """Return a workunit's description with one file in place of another.

    Args:
        description: BOINC's ``xml_doc``, made by ``create_work`` from our template.
        old: name of the file that goes.
        new: the one that comes.
        url: where hosts get it.
    """
    values = {
        "name": new.name,
        "url": url,
        "md5_cksum": new.md5,
        "nbytes": str(new.size),
    }

    def renew(match: re.Match[str]) -> str:
        block = match[0]
        if f"<name>{old}</name>" not in block:
            return block
        for tag, value in values.items():
            block = re.sub(f"<{tag}>[^<]*</{tag}>", f"<{tag}>{value}</{tag}>", block)
        return block

    text = _INFO.sub(renew, description)
    return text.replace(
        f"<file_name>{old}</file_name>", f"<file_name>{new.name}</file_name>"
    )


def renew_release(project: StockProject, database: Database, new: StagedFile) -> bool:
    """Give some open workunits the release metadata of today.

    Returns:
        Whether there were any with another.
    """
    table = tables.workunits
    query = (
        select(table.c.id, table.c.boinc_id, table.c.release_file)
        .where(
            table.c.outcome.is_(None),
            table.c.release_file > "",
            (table.c.release_file < new.name) | (table.c.release_file > new.name),
            table.c.boinc_id != 0,
        )
        .limit(_AT_ONCE)
    )
    with database.read() as connection:
        rows = connection.execute(query).all()
        texts = [_description(connection, row.boinc_id) for row in rows]
    folder = fan_out(new.name, project.fanout)
    url = "/".join(filter(None, (project.download_url, folder, new.name)))
    for row, old in zip(rows, texts, strict=True):
        text = old.decode("utf-8", "surrogateescape")
        text = replace_file(text, row.release_file, new, url)
        made = text.encode("utf-8", "surrogateescape")
        renew_description(database, row.boinc_id, old, made)
        with database.write() as connection:
            _note_release(connection, row, new)
    return bool(rows)


def _note_release(connection: Connection, row: Row, new: StagedFile) -> None:  # type: ignore[type-arg]  # columns of `workunits`
    table, needs = tables.workunits, tables.needs
    # should BOINC lose the workunit, it is made anew with this one
    line = func.replace(table.c.line, row.release_file, new.name)
    mine = update(table).where(table.c.id == row.id)
    connection.execute(mine.values(release_file=new.name, line=line))
    claim = {"workunit_id": row.id, "file": new.name}
    there = [needs.c[name] == value for name, value in claim.items()]
    # results issued earlier were told of the old one: it stays claimed
    if connection.scalar(select(needs.c.file).where(*there)) is None:
        connection.execute(insert(needs).values(claim))


def _description(connection: Connection, boinc_id: int) -> bytes:
    table = boinc_tables.workunits
    found = connection.scalar(select(table.c.xml_doc).where(table.c.id == boinc_id))
    return found.encode() if isinstance(found, str) else bytes(found or b"")


def _stray_files(database: Database, names: Collection[str]) -> set[str]:
    table = tables.needs
    with database.read() as connection:
        found = select_in(connection, [table.c.file], table.c.file, names)
    return set(names) - {file for (file,) in found}
