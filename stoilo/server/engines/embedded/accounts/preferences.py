"""Which workunits may be sent: what account and host choose, and what the host has room for.

What a volunteer chooses for an account filters what is sent, and travels to every host of it
inside ``<project_preferences>``, where the verifier reads it and can only lower its own opt-in
by it (design §4, I4): whoever writes here, the project's operator and a thief included, takes
work away from a host and never allows it more. Nothing chosen means nothing above `pure`; in
BOINC it would mean everything (reference/boinc.md §3.7). A host may say what it would refuse;
the executor refuses by its own file whatever comes.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from sqlalchemy import and_, or_, select, true, update

from stoilo.core.boinc.messages import MOST_TOPICS, TOPIC, Wishes
from stoilo.core.boinc.xml import XmlBounds, escape, parse_xml
from stoilo.core.errors import TrustError, UsageError
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import must_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection

    from stoilo.core.boinc.messages import Wishes
    from stoilo.server.engines.embedded.db.schema import AnyRow

# Of `hosts`: what it would refuse
WISH_COLUMNS: Final = ("max_level", "require_review", "require_public_source", "topics")
NO_WISHES: Final[tuple[object, ...]] = ("", 0, 0, "")
NAME_CHARS: Final = 60
# A topic that no task can carry (`TOPIC` does not match it)
NO_TOPIC: Final = ";"
LEVELS: Final = ("pure", "numeric", "tensor", "gpu")


def levels_up_to(level: str) -> tuple[str, ...]:
    """Return the levels up to and with one; an unknown one is the lowest."""
    place = LEVELS.index(level) if level in LEVELS else 0
    return LEVELS[: place + 1]


def check_level(level: str) -> str:
    """Return a level that exists, or raise ``STO-E015``."""
    if level not in LEVELS:
        raise UsageError(
            "STO-E015",
            f"there is no level {level[:32]!r}",
            hint="levels are " + ", ".join(LEVELS),
        )
    return level


def join_words(words: Sequence[str]) -> str:
    """Return words as one column holds them: each between two commas."""
    return f",{','.join(words)}," if words else ""


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of such a column."""
    return tuple(word for word in text.split(",") if word)


def holds(column: ColumnElement[str], word: str) -> ColumnElement[bool]:
    """Return the condition that such a column holds a word."""
    return column.contains(f",{word},", autoescape=True)


def allowed_apps(apps: Sequence[str], wishes: Wishes) -> tuple[str, ...]:
    """Return the apps of an account that the host wants; an unknown level is `pure`."""
    if not wishes.max_level:
        return tuple(apps)
    return tuple(app for app in apps if app in levels_up_to(wishes.max_level))


def remember_wishes(
    connection: Connection,
    host_id: int,
    stored: tuple[object, ...],  # in the order of `WISH_COLUMNS`
    wishes: Wishes,
) -> None:
    """Store a host's wishes where they differ from those `stored`."""
    wanted = (
        wishes.max_level,
        int(wishes.require_review),
        int(wishes.require_public_source),
        join_words(wishes.topics),
    )
    if stored == wanted:
        return
    must_write(connection)
    table = schema.hosts
    row = dict(zip(WISH_COLUMNS, wanted, strict=True))
    connection.execute(update(table).where(table.c.id == host_id).values(row))


def is_wanted(wishes: Wishes) -> ColumnElement[bool]:
    """Return the condition that a row of `workunits` is what the host takes."""
    table = schema.workunits
    needed: list[ColumnElement[bool]] = [true()]
    if wishes.require_review:
        needed.append(table.c.reviewed == 1)
    if wishes.require_public_source:
        needed.append(table.c.public_source == 1)
    if wishes.topics:
        needed.append(or_(*(holds(table.c.topics, one) for one in wishes.topics)))
    return and_(*needed)


def takes(wishes: Wishes, workunit: AnyRow) -> bool:
    """Say the same of a row with `workunit_columns`."""
    topics = set(split_words(workunit.wu_topics))
    return (
        (not wishes.require_review or bool(workunit.wu_reviewed))
        and (not wishes.require_public_source or bool(workunit.wu_public_source))
        and (not wishes.topics or not topics.isdisjoint(wishes.topics))
    )


def would_take(workunit: AnyRow) -> ColumnElement[bool]:
    """Return the condition that a row of `hosts` has not asked not to be sent this."""
    table, app = schema.hosts, workunit.app
    levels = LEVELS[LEVELS.index(app) :] if app in LEVELS else ()
    named = [holds(table.c.topics, topic) for topic in split_words(workunit.topics)]
    needed = [table.c.max_level.in_(["", *levels]), or_(table.c.topics == "", *named)]
    if not workunit.reviewed:
        needed.append(table.c.require_review == 0)
    if not workunit.public_source:
        needed.append(table.c.require_public_source == 0)
    return and_(*needed)


@dataclass(frozen=True, slots=True)
class ProjectPreferences:
    """A volunteer's choices for all computers of the account."""

    levels: tuple[str, ...] = ()  # apps to be sent; empty means `pure` alone
    require_review: bool = False  # only tasks that a reviewer signed
    require_public_source: bool = False  # only tasks whose source may be published
    topics: tuple[str, ...] = ()  # when not empty, only tasks that carry one of these
    name: str = ""  # shown to others, empty for none

    @property
    def max_level(self) -> str:
        """The highest level chosen."""
        return max(self.levels, key=LEVELS.index, default=LEVELS[0])


def check_name(name: str) -> str:
    """Return an (untrusted) name in the one form that is stored.

    Raises:
        UsageError: ``STO-E015`` for one that is too long, holds control or invisible
            characters or markup, or looks like an address (names are public).
    """
    text = " ".join(unicodedata.normalize("NFC", name[: 8 * NAME_CHARS]).split())
    hidden = any(unicodedata.category(one)[0] == "C" for one in text)
    if len(text) > NAME_CHARS or hidden or set(text) & set("<>&@\"'"):
        raise UsageError(
            "STO-E015",
            "this name cannot be used",
            hint=f"at most {NAME_CHARS} visible characters, without < > & @ and quotes",
        )
    return text


def check_preferences(chosen: ProjectPreferences) -> ProjectPreferences:
    """Return (untrusted) choices in the one form that is stored; raises ``STO-E015``."""
    named = set(map(check_level, chosen.levels))
    topics = tuple(sorted(set(chosen.topics)))
    if len(topics) > MOST_TOPICS or not all(map(TOPIC.fullmatch, topics)):
        raise UsageError(
            "STO-E015",
            "these topics cannot be used",
            hint=f"at most {MOST_TOPICS}, each of letters, digits and _ . / + -",
        )
    levels = tuple(level for level in LEVELS if level in named) or LEVELS[:1]
    return replace(chosen, levels=levels, topics=topics, name=check_name(chosen.name))


def load_preferences(connection: Connection, user_id: int) -> ProjectPreferences:
    """Return what holds for a user."""
    users = schema.users
    return preferences_of(
        connection.execute(select(users).where(users.c.id == user_id)).one()
    )


def preferences_of(row: AnyRow) -> ProjectPreferences:
    """Return what a row of `users` says."""
    return ProjectPreferences(
        split_words(row.levels),
        bool(row.require_review),
        bool(row.require_public_source),
        split_words(row.topics),
        row.name,
    )


def save_preferences(
    connection: Connection, user_id: int, chosen: ProjectPreferences
) -> ProjectPreferences:
    """Store a user's choices and return them as stored; raises ``STO-E015``."""
    checked = check_preferences(chosen)
    connection.execute(
        update(schema.users)
        .where(schema.users.c.id == user_id)
        .values(
            max_level=checked.max_level,
            levels=join_words(checked.levels),
            require_review=int(checked.require_review),
            require_public_source=int(checked.require_public_source),
            topics=join_words(checked.topics),
            name=checked.name,
        )
    )
    return checked


def project_preferences(chosen: ProjectPreferences) -> str:
    """Return the elements inside ``<project_preferences>`` of a reply.

    What stands in ``<project_specific>`` is all that reaches a task's slot.
    """
    levels = chosen.levels or LEVELS[:1]
    review, public = int(chosen.require_review), int(chosen.require_public_source)
    # BOINC's number of a level's app
    lines = [f"<app_id>{LEVELS.index(level) + 1}</app_id>" for level in levels]
    lines += [
        f"<max_level>{chosen.max_level}</max_level>",
        f"<require_review>{review}</require_review>",
        f"<require_public_source>{public}</require_public_source>",
    ]
    lines += [f"<topic>{escape(topic)}</topic>" for topic in chosen.topics]
    inner = "\n".join(lines)
    return f"<project_specific>\n{inner}\n</project_specific>\n"


def narrow_wishes(wishes: Wishes, chosen: ProjectPreferences) -> Wishes:
    """Return what neither the host nor its account wants left out; each takes away.

    Levels are not looked at here: the account's are the user's apps already.
    """
    topics = wishes.topics or chosen.topics
    if wishes.topics and chosen.topics:
        both = sorted(set(wishes.topics) & set(chosen.topics))
        topics = tuple(both) or (NO_TOPIC,)
    return replace(
        wishes,
        require_review=wishes.require_review or chosen.require_review,
        require_public_source=(
            wishes.require_public_source or chosen.require_public_source
        ),
        topics=topics,
    )


# A user's global preferences (BOINC's) are carried from one of their hosts to the others. They
# say when and how much a client computes, for all its projects. A client sends XML; what is
# kept is a list of known elements with numbers, written anew by us, so no byte of a client's
# text reaches another host. The newest ``mod_time`` wins. Documents with parts that this form
# cannot say (venues, times of single days) are left alone: a host keeps what it has rather
# than losing a part of it.
BOUNDS: Final = XmlBounds(document_bytes=64 * 1024, depth=6, elements=500)
# A client's clock may be wrong by that; a later time would win for ever
MOST_AHEAD_S: Final = 86_400
# Documents remembered: each client sends the same ones with every call
PARSED: Final = 128
_NUMBERS: Final = """
    battery_charge_min_pct battery_max_temperature confirm_before_connecting
    cpu_scheduling_period_minutes cpu_usage_limit daily_xfer_limit_mb
    daily_xfer_period_days disk_interval disk_max_used_gb disk_max_used_pct
    disk_min_free_gb dont_verify_images end_hour hangup_if_dialed idle_time_to_run
    leave_apps_in_memory max_bytes_sec_down max_bytes_sec_up max_ncpus max_ncpus_pct
    net_end_hour net_start_hour network_wifi_only niu_cpu_usage_limit
    niu_max_ncpus_pct niu_suspend_cpu_usage ram_max_used_busy_pct
    ram_max_used_idle_pct run_gpu_if_user_active run_if_user_active
    run_on_batteries start_hour suspend_cpu_usage suspend_if_no_recent_input
    vm_max_used_pct work_buf_additional_days work_buf_min_days
"""
# Settings that are one number each
GLOBAL_TAGS: Final = frozenset(_NUMBERS.split())
_NOT_KEPT: Final = frozenset({"venue", "day_prefs"})


@lru_cache(maxsize=PARSED)
def parse_global_preferences(text: str) -> tuple[int, str] | None:
    """Return when a client's (hostile) preferences were changed, s, and our text of them.

    With or without the element ``<global_preferences>`` around them. Unknown elements
    and values that are no numbers are left out; None where nothing is to be carried.
    """
    try:
        root = parse_xml(f"<all>{text}</all>".encode(), BOUNDS)
    except TrustError:
        return None
    root = root.find("global_preferences") or root
    if any(child.tag in _NOT_KEPT for child in root.children):
        return None
    numbers: dict[str, float] = {}
    for child in root.children:
        value = _number(child.text)
        if child.tag in {*GLOBAL_TAGS, "mod_time"} and value is not None:
            numbers[child.tag] = value
    modified_at = int(numbers.pop("mod_time", 0))
    if modified_at <= 0 or not numbers:
        return None
    lines = [f"<mod_time>{modified_at}</mod_time>"]
    lines += [f"<{tag}>{numbers[tag]:.6f}</{tag}>" for tag in sorted(numbers)]
    return modified_at, "\n".join(lines) + "\n"


def exchange_global_preferences(
    connection: Connection,
    stored: AnyRow,  # of `users`
    sent: str,
    now: int,
    *,
    weak: bool,
) -> str:
    """Store what a host sent if it is the newest; return what is newer than that.

    Empty when the host has the newest already, or its user has none. From a caller with
    the `weak` key nothing is stored (BOINC: ``handle_global_prefs``).
    """
    given = parse_global_preferences(sent)
    known, users = str(stored.document), schema.users
    if given is None:
        return "" if sent.strip() else known
    modified_at, document = given
    if not weak and stored.preferences_at < modified_at <= now + MOST_AHEAD_S:
        must_write(connection)
        values = {"preferences_at": modified_at, "document": document}
        mine = users.c.id == stored.id
        connection.execute(update(users).where(mine).values(values))
    return known if stored.preferences_at > modified_at else ""


def _number(text: str) -> float | None:
    """Return a number from 0 to 10^12 (empty: BOINC's flag, 1), None for anything else."""
    if not text:
        return 1.0
    try:
        value = float(text)
    except ValueError:
        return None
    # Zero is added: -0 is one of the numbers, and its sign would go on.
    return value + 0.0 if 0.0 <= value <= 1e12 else None  # noqa: PLR2004
