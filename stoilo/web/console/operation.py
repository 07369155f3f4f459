"""An operator's pages: read only, from what the watch and the operator's commands know."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import StoiloError
from stoilo.server.config import without_password
from stoilo.server.log.refusals import count_refusals
from stoilo.server.operations.accounts import list_accounts
from stoilo.server.watching.metrics import METRICS, read_figures
from stoilo.signer.ceremony.release_status import warnings_of
from stoilo.web.archive import look
from stoilo.web.console.wording import SECTIONS, render_figures, section_of
from stoilo.web.details import remarks_of
from stoilo.web.language import gettext

if TYPE_CHECKING:
    from starlette.responses import Response

    from stoilo.server.app.task_server import ServerPlace
    from stoilo.web.archive import Head
    from stoilo.web.console.asking import Asked

DAY_S: Final = 86_400
ON_PAGE: Final = 200  # hosts or accounts of one page
MOST_PAGES: Final = 1000


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure in words."""

    term: str
    value: str


class Operation:
    """The handlers of one server; they block."""

    def __init__(self, place: ServerPlace) -> None:
        self._place = place
        self._sources = place.watch.sources

    def project(self, asked: Asked) -> Response:
        """``/console/project``: is it well, what waits, what ends when, what is refused."""
        now, release = self._sources.clock(), self._sources.release()
        refused = count_refusals(self._place.tasks.store, now - DAY_S)
        return asked.render(
            "console/project.html",
            checks=self._sources.readiness().checks,
            sections=self._figures(now),
            release=release,
            warnings=warnings_of(release),
            refused=[(remarks_of(code)[0], count) for code, count in refused],
            head=self._head(),
        )

    def _figures(self, now: int) -> dict[str, list[Figure]]:
        """Return the watch's own figures by section: nothing is counted twice."""
        read: dict[str, list[tuple[str, float]]] = {}
        for name, value, *labels in read_figures(self._sources):
            read.setdefault(name, []).append((" ".join(labels), value))
        found: dict[str, list[Figure]] = {title: [] for title, _ in SECTIONS}
        for metric in METRICS:
            title = section_of(metric.name)
            if title and metric.name in read:
                text = render_figures(metric.name, read[metric.name])
                found[title].append(Figure(metric.help.removesuffix("."), text))
        signed = read.get("stoilo_admissions_total", [("", 0.0)])[0][1]
        since = read.get("stoilo_start_time_seconds", [("", now - 1.0)])[0][1]
        pace = f"{60 * signed / max(1.0, now - since):.3g}"
        found[SECTIONS[0][0]].append(
            Figure(gettext("Admissions a minute since the start"), pace)
        )
        return found

    def _head(self) -> Head | None:
        try:
            with look(self._place.data) as view:
                return view.head
        except StoiloError:  # the check of the log says why
            return None

    def hosts(self, asked: Asked) -> Response:
        """``/console/hosts``: the computers, by number; who they are says the command."""
        roster = self._place.roster
        known = roster.list_hosts() if roster else ()
        checks = (
            roster.spot_checks(self._sources.clock() - 30 * DAY_S) if roster else ()
        )
        page = asked.number("page", MOST_PAGES)
        shown = known[::-1][ON_PAGE * (page - 1) : ON_PAGE * page]
        return asked.render(
            "console/hosts.html",
            stock=roster is None,
            hosts=shown,
            total=len(known),
            checks=checks,
            page=page,
            more=len(known) > ON_PAGE * page,
        )

    def accounts(self, asked: Asked) -> Response:
        """``/console/accounts``: who may submit; changed by the command line alone."""
        page = asked.number("page", MOST_PAGES)
        found = list_accounts(self._place.tasks.store, self._sources.clock())
        shown = found[ON_PAGE * (page - 1) : ON_PAGE * page]
        more = len(found) > ON_PAGE * page
        return asked.render(
            "console/accounts.html", accounts=shown, page=page, more=more
        )

    def settings(self, asked: Asked) -> Response:
        """``/console/settings``: what the server runs with, without passwords."""
        config = self._place.config
        found = [
            (one.name, without_password(getattr(config, one.name)), one.default)
            for one in fields(config)
            if one.name != "data"
        ]
        return asked.render("console/settings.html", settings=found)
