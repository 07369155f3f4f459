"""The pages' texts: what the log says, laid out by templates that escape everything."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import jinja2

from stoilo.audit.format.facts import (
    MentionKind,
    RetentionRecord,
    WorkunitRecord,
    show_time,
)
from stoilo.audit.format.proof import LeafKind
from stoilo.audit.format.records import Mention, record_digest
from stoilo.core.errors import StoiloError, TrustError
from stoilo.web import wording
from stoilo.web.archive import Entry, View
from stoilo.web.details import (
    Shape,
    describe_permission,
    list_details,
    list_measures,
    remarks_of,
)
from stoilo.web.language import language, template_words
from stoilo.web.listing import Listing, list_source
from stoilo.web.timeline import Attempt, Timeline

PAGE_ENTRIES = 50


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file that ships with the pages."""

    name: str  # with a part of its digest, so that it may be cached for ever
    data: bytes  # its bytes
    media_type: str  # of the bytes


@dataclass(frozen=True, slots=True)
class ShownSource:
    """The source of an attempt as its page shows it."""

    digest: str  # its digest where it was published, else the salted commitment
    public: bool  # whether the submitter chose publication
    listing: Listing | None = None  # the text, None when it is not here
    deleted: bool = False  # whether it was here and was deleted on purpose
    deleted_by: Entry | None = None  # the entry that says so, if there is one
    fault: str = ""  # why it cannot be shown, empty when nothing is wrong


_MEDIA = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def load_assets() -> dict[str, Asset]:
    """Return the static files by their plain names, for example ``audit.css``."""
    found: dict[str, Asset] = {}
    for file in (resources.files("stoilo.web") / "static").iterdir():
        data, (stem, _, ending) = file.read_bytes(), file.name.rpartition(".")
        name = f"{stem}.{hashlib.sha256(data).hexdigest()[:16]}.{ending}"
        found[file.name] = Asset(name, data, _MEDIA[ending])
    return found


def open_templates(url: str, assets: Mapping[str, Asset]) -> jinja2.Environment:
    """Return the templates, with what all of them may use."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("stoilo.web"),
        autoescape=True,
        # A misspelt name must fail a test, not leave a gap on a page.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    environment.policies["ext.i18n.trimmed"] = True  # a message is one line
    environment.install_gettext_callables(**template_words())  # type: ignore[attr-defined]  # of the extension
    environment.globals.update(
        language=language,
        Shape=Shape,
        url=url,
        assets={name: one.name for name, one in assets.items()},
        commands=wording,
    )
    environment.filters.update(
        amount=wording.render_amount,
        bytes=wording.render_bytes,
        sentence=wording.describe_entry,
        time=show_time,
        time_attribute=wording.render_time_attribute,
    )
    return environment


class Pages:
    """Renders pages for the server that is reached at `url` (with final slash)."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.assets = load_assets()
        self._environment = open_templates(url, self.assets)

    def index(self, view: View, before: int) -> str:
        """Return the overview, with entries below place `before`."""
        policy = view.head.policy.decode(errors="backslashreplace")
        entries = view.newest(before, PAGE_ENTRIES)
        return self._render("index.html", view=view, entries=entries, policy=policy)

    def entry(self, view: View, entry: Entry) -> str:
        """Return the page of one entry."""
        explained = None
        if entry.leaf is not None and entry.leaf.kind is LeafKind.ADMISSION:
            explained = find_explanation(view, entry)
        return self._render(
            "entry.html",
            view=view,
            entry=entry,
            details=list_details(entry.record) if entry.record else [],
            record_digest=record_digest(entry.raw) if entry.record else "",
            explained=explained,
            limits=_limits(entry),
        )

    def task(self, view: View, timeline: Timeline) -> str:
        """Return the page of one task; its newest attempt is told in full."""
        attempt = timeline.attempts[-1] if timeline.attempts else None
        return self._render(
            "task.html",
            view=view,
            timeline=timeline,
            summary=wording.summarize_task(timeline),
            state=wording.describe_state(timeline.outcome),
            attempt=attempt,
            outcome_remarks=remarks_of(
                timeline.outcome.code if timeline.outcome else ""
            ),
            **(_attempt_parts(view, attempt) if attempt else {}),
        )

    def search(self, query: str, entries: Sequence[Entry], problem: str) -> str:
        """Return the answers to a question, or why it cannot be answered."""
        return self._render(
            "search.html",
            query=query,
            entries=entries,
            problem=problem,
            most=PAGE_ENTRIES,
        )

    def error(self, error: StoiloError) -> str:
        """Return the page of one of our errors."""
        return self._render("error.html", error=error)

    def _render(self, template: str, **values: object) -> str:
        return self._environment.get_template(template).render(**values)


def find_explanation(view: View, admission: Entry) -> Entry | None:
    """Return the entry that explains an admission, None while there is none."""
    for entry in view.find(Mention(MentionKind.DIGEST, admission.hash)):
        record = entry.record
        if isinstance(record, WorkunitRecord) and record.admission == admission.index:
            return entry
    return None


def show_source(view: View, record: WorkunitRecord) -> ShownSource:
    """Return an attempt's source as far as it may and can be shown."""
    if not record.public_source:
        return ShownSource(record.source, public=False)
    try:
        data = view.source(record.source)
    except TrustError as error:
        return ShownSource(record.source, public=True, fault=error.message)
    if data is None:
        deleted = view.was_deleted(record.source)
        by = find_deletion(view, record.source) if deleted else None
        return ShownSource(record.source, public=True, deleted=deleted, deleted_by=by)
    return ShownSource(record.source, public=True, listing=list_source(data))


def find_deletion(view: View, digest: str) -> Entry | None:
    """Return the newest entry that says that a published source was deleted."""
    for entry in view.find(Mention(MentionKind.DIGEST, digest)):
        if isinstance(entry.record, RetentionRecord):
            return entry
    return None


def _limits(entry: Entry) -> list[object]:
    if not isinstance(entry.record, WorkunitRecord):
        return []
    record = entry.record
    return [*list_measures(record.limits), *list_measures(record.redundancy)]


def _attempt_parts(view: View, attempt: Attempt) -> dict[str, object]:
    """Return what the template of a task needs for its newest attempt."""
    record = attempt.record
    return {
        "record": record,
        "record_digest": record_digest(attempt.entry.raw),
        "remarks": remarks_of(*sorted(set(record.codes))),
        "permission": describe_permission(record),
        "limits": list_measures(record.limits),
        "redundancy": list_measures(record.redundancy),
        "details": [one for one in list_details(record) if one.shape is Shape.HASH],
        "source": show_source(view, record),
    }
