"""A reviewer's pages: what waits, all that a signature covers, and how to sign it elsewhere.

They read only. No key of a reviewer is ever here: he downloads the files, signs them on a
machine of his own, and hands the signature in by command.
"""

from __future__ import annotations

import difflib
import functools
from typing import TYPE_CHECKING, Final

from stoilo.client.reviewing import (
    digest_parts,
    make_review,
    pack_folder,
    read_response,
)
from stoilo.core.codec.json_values import render_json_value
from stoilo.core.codec.skeleton import decode
from stoilo.core.errors import StoiloError
from stoilo.web.console.asking import download
from stoilo.web.console.research import SHOWN_BYTES, Shown, describe_value, show_json
from stoilo.web.details import list_measures, remarks_of
from stoilo.web.language import gettext
from stoilo.web.listing import list_source, reveal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from markupsafe import Markup
    from starlette.responses import Response

    from stoilo.core.types import Finding
    from stoilo.server.app.task_server import TaskServer
    from stoilo.server.reviews.desk import Viewed
    from stoilo.web.console.asking import Asked

MOST_COMPARED: Final = 1000  # lines of either source: hostile ones cost the square
_OF_VALIDATORS: Final = "in the validators: "  # of `policies.findings.in_validators`
_KINDS: Final = {"+": "added", "-": "removed", "@": "place", " ": ""}


class Reviewing:
    """The handlers of one server; they block."""

    def __init__(self, tasks: TaskServer) -> None:
        self._desk = tasks.review_desk
        self._book = tasks.reviews

    def queue(self, asked: Asked) -> Response:
        """``/console/reviews``: what waits, the longest waiting first."""
        total, shown = self._desk.queue(asked.visitor.owner, 0)
        remarks = {one.task.task_id: remarks_of(*one.task.spec.codes) for one in shown}
        return asked.render(
            "console/reviews.html", total=total, waiting=shown, remarks=remarks
        )

    def review(self, asked: Asked) -> Response:
        """``/console/review/ID``: one task, all that a review of it covers."""
        viewed = self._desk.view(asked.visitor.owner, asked.task_id)
        spec, content = viewed.task.spec, viewed.content
        found = viewed.verdict.findings
        return asked.render(
            "console/review.html",
            viewed=viewed,
            task=viewed.task,
            spec=spec,
            wanted=self._book.needs_review(spec.level),
            listing=list_source(content.task_module),
            notes=by_line(found),
            others=[one for one in found if one.message.startswith(_OF_VALIDATORS)],
            validator=list_source(content.validator_module),
            arguments=_show(content.arguments),
            limits=list_measures(spec.limits),
            changes=_changes(viewed),
            folder=f"task-{viewed.task.task_id[:12]}",
            digests=digest_parts(make_review(read_response(content), 1)),
        )

    def folder(self, asked: Asked) -> Response:
        """``/console/review/ID/folder.zip``: exactly the files that are signed."""
        task = read_response(self._desk.download(asked.task_id))
        name = f"task-{task.request.task_id[:12]}"
        return download(pack_folder(task, name), f"{name}.zip", "application/zip")


def by_line(findings: Iterable[Finding]) -> dict[int, list[Finding]]:
    """Return the findings about the task module by their line. Pure."""
    found: dict[int, list[Finding]] = {}
    for one in findings:
        if not one.message.startswith(_OF_VALIDATORS):
            found.setdefault(one.line, []).append(one)
    return found


def _changes(viewed: Viewed) -> tuple[tuple[str, Markup], ...] | None:
    earlier = viewed.earlier
    if earlier is None or earlier.source is None:
        return ()
    return compare(earlier.source, viewed.content.task_module)


@functools.lru_cache(maxsize=8)  # sources never change, and long ones take seconds
def compare(before: bytes, after: bytes) -> tuple[tuple[str, Markup], ...] | None:
    """Return the lines of a unified diff of two (hostile) sources, each with its kind.

    Empty for equal ones, None for those that are too long to be compared here.
    """
    old, new = (
        one.decode("utf-8", "backslashreplace").split("\n") for one in (before, after)
    )
    if max(len(old), len(new)) > MOST_COMPARED:
        return None
    lines = [*difflib.unified_diff(old, new, "approved", "this", lineterm="")]
    return tuple((_KINDS[line[0]], reveal(line)) for line in lines[2:])


def _show(arguments: bytes) -> Shown:
    """Return (hostile) arguments as their page shows them."""
    try:
        node = decode(arguments)
        text = show_json(render_json_value(node))
    except StoiloError as error:
        said = gettext("%(count)s bytes, not shown: %(why)s")
        return Shown(said % {"count": len(arguments), "why": error.message})
    return Shown(describe_value(node), text if len(arguments) <= SHOWN_BYTES else "")
