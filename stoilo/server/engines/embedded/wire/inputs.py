"""The input files of a workunit as a scheduler reply names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from stoilo.executor.messages import FileInfo, FileRef
from stoilo.executor.workdir import RELEASE
from stoilo.server.engines.embedded import schema

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

__all__ = ["file_refs"]


def file_refs(
    connection: Connection,
    workunit_id: int,
    base_url: str,
    files: dict[str, FileInfo],
) -> tuple[FileRef, ...]:
    """Return a workunit's files, today's release among them; adds them to `files`."""
    needs, table = schema.workunit_files, schema.files
    rows = connection.execute(
        select(needs.c.open_name, needs.c.sticky, table)
        .join(table, table.c.digest == needs.c.digest)
        .where(needs.c.workunit_id == workunit_id)
        .order_by(needs.c.open_name)
    ).all()
    refs = [FileRef(row.digest, row.open_name) for row in rows]
    for row in rows:
        known = files.get(row.digest)  # sticky for one workunit is sticky for all
        sticky = bool(row.sticky) or (known is not None and known.sticky)
        files[row.digest] = _file_info(row, base_url, sticky=sticky)
    if all(ref.open_name != RELEASE for ref in refs):
        release = connection.execute(
            select(table)
            .join(schema.settings, schema.settings.c.value == table.c.digest)
            .where(schema.settings.c.name == "release-0")
        ).first()
        if release is not None:
            files[release.digest] = _file_info(release, base_url, sticky=True)
            refs.append(FileRef(release.digest, RELEASE))
    return tuple(refs)


def _file_info(row: Row, base_url: str, *, sticky: bool) -> FileInfo:  # type: ignore[type-arg]  # a row of `files`
    """Return one input file as the reply names it."""
    url = f"{base_url}download/{row.token}"
    return FileInfo(row.digest, url, row.size, row.md5, sticky)
