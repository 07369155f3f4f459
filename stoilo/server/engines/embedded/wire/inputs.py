"""The input files of workunits as a scheduler reply names them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, select

from stoilo.core.boinc.messages import FileInfo, FileRef
from stoilo.executor.verifier.workunit import RELEASE
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.wire.catalogue import HeldFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Select

__all__ = ["file_refs"]


def file_refs(
    connection: Connection,
    workunits: Sequence[int],
    release: HeldFile | None,
    base_url: str,
) -> tuple[dict[int, list[FileRef]], tuple[FileInfo, ...]]:
    """Return files of some workunits, today's release among them, and all of them once.

    A workunit that brings a release of its own gets that.
    """
    if not workunits:
        return {}, ()
    refs: dict[int, list[FileRef]] = {row: [] for row in workunits}
    files: dict[str, FileInfo] = {}
    rows = connection.execute(_query(), {"rows": list(refs)}).all()
    for row, open_name, sticky, digest, token, size, md5 in rows:
        file = HeldFile(digest, token, size, md5)
        refs[row].append(FileRef(file.digest, open_name))
        known = files.get(file.digest)  # sticky for one workunit is sticky for all
        keep = bool(sticky) or (known is not None and known.sticky)
        files[file.digest] = file.info(base_url, sticky=keep)
    for own in refs.values():
        if release is not None and all(ref.open_name != RELEASE for ref in own):
            files[release.digest] = release.info(base_url, sticky=True)
            own.append(FileRef(release.digest, RELEASE))
    return refs, tuple(files.values())


@cache
def _query() -> Select[int, str, int, str, str, int, str]:
    """Return the query for the files of workunits :rows, each workunit's in order."""
    needs, table = schema.workunit_files, schema.files
    of = needs.c.workunit_id
    return (
        select(
            of,
            needs.c.open_name,
            needs.c.sticky,
            table.c.digest,
            table.c.token,
            table.c.size,
            table.c.md5,
        )
        .join(table, table.c.digest == needs.c.digest)
        .where(of.in_(bindparam("rows", expanding=True)))
        .order_by(of, needs.c.open_name)
    )
