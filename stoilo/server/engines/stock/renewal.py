"""Release metadata among the input files, and how copies issued later get that of today.

A workunit's files are fixed when it is made, and BOINC's names are immutable: a host that
has a file keeps it. But signed metadata expires, and a workunit may wait for days. So the
workunits that may still issue copies get their description rewritten: the same file_ref,
another file. Hosts that have their copy keep what they were sent, and fetch it: the file
stays as long as the workunit. The executor takes the newest of what it is given and what
it knows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, insert, select, update

from stoilo.server.engines.stock import boinctables, schema
from stoilo.server.engines.stock.filestore import fan_out

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from stoilo.server.engines.stock.database import Database
    from stoilo.server.engines.stock.nudges import Nudges
    from stoilo.server.engines.stock.project import StockProject
    from stoilo.server.engines.stock.staging import StagedFile

__all__ = ["Renewal", "replace_file"]

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


class Renewal:
    """Gives open workunits the release metadata of today."""

    def __init__(
        self, project: StockProject, database: Database, nudges: Nudges
    ) -> None:
        self._project = project
        self._database = database
        self._nudges = nudges

    def url_of(self, name: str) -> str:
        """Return where hosts get a file."""
        config = self._project.config
        folder = fan_out(name, config.fanout)
        return "/".join(part for part in (config.download_url, folder, name) if part)

    def renew(self, new: StagedFile) -> bool:
        """Rewrite some workunits with an older release; returns whether there were any."""
        table = schema.workunits
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
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            old = {row.id: _description(connection, row.boinc_id) for row in rows}
        for row in rows:
            self._renew_one(row, old[row.id], new)
        return bool(rows)

    def _renew_one(self, row: Row, old: bytes, new: StagedFile) -> None:  # type: ignore[type-arg]  # columns of `workunits`
        text = replace_file(
            old.decode("utf-8", "surrogateescape"),
            row.release_file,
            new,
            self.url_of(new.name),
        )
        self._nudges.renew_file(
            row.boinc_id, old, text.encode("utf-8", "surrogateescape")
        )
        table, needs = schema.workunits, schema.needs
        with self._database.write() as connection:
            connection.execute(
                update(table).where(table.c.id == row.id).values(release_file=new.name)
            )
            mine = needs.c.workunit_id == row.id
            lowest = connection.scalar(select(func.min(needs.c.position)).where(mine))
            connection.execute(
                update(needs)
                .where(mine, needs.c.file == row.release_file, needs.c.position >= 0)
                .values(file=new.name)
            )
            connection.execute(
                insert(needs).values(
                    workunit_id=row.id,
                    position=min(lowest or 0, 0) - 1,
                    file=row.release_file,
                )
            )


def _description(connection: Connection, boinc_id: int) -> bytes:
    table = boinctables.workunits
    found = connection.scalar(select(table.c.xml_doc).where(table.c.id == boinc_id))
    return found.encode() if isinstance(found, str) else bytes(found or b"")
