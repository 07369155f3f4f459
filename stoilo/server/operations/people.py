"""Many accounts from one list: read whole, then each made with its connection file.

A row is made in one transaction in which its file is written too, so that a run that was
cut off is repeated as it is: who has a file with a good token is left alone.
Trust: the list is the operator's; still it is bounded, and nothing of it is a path.
"""

from __future__ import annotations

import contextlib
import csv
import io
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from stoilo.core.errors import DeniedError, UsageError
from stoilo.server.admission import tokens
from stoilo.server.data_directory import ConnectionFile, read_connection_file
from stoilo.server.operations import accounts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stoilo.server.db.store import Store

MOST_ROWS: Final = 1000
SHOWN: Final = 20  # faults that are named; the others are counted
MOST_DAYS: Final = 3650
ROLES: Final = tuple(one.value for one in tokens.Role if one != tokens.Role.REVIEWER)
# a file of that name is written, and case may not tell two apart
NAME_PATTERN: Final = r"\A[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}\Z"
_Word = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]


class Person(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row, each field a column; what is left empty is as here."""

    name: _Word
    role: Literal["researcher", "auditor", "operator", "volunteer"] = "researcher"
    group: _Word | None = None
    days: Annotated[int, msgspec.Meta(ge=1, le=MOST_DAYS)] = 365  # of a new token


def read_people(text: str) -> tuple[Person, ...]:
    """Return the rows of a CSV text, whose first line names the columns.

    Raises:
        UsageError: ``STO-U004`` with the fault of each row.
    """
    found = csv.DictReader(
        io.StringIO(text, newline=""), restkey="more", restval="", strict=True
    )
    people: dict[str, Person] = {}
    faults = []
    try:
        for row in found:
            fields = {
                key: text for key, value in row.items() if (text := str(value).strip())
            }
            try:
                person = msgspec.convert(fields, Person, strict=False)
                if person.name.casefold() in people:
                    faults.append(f"line {found.line_num}: {person.name} stands twice")
                people[person.name.casefold()] = person
            except msgspec.ValidationError as error:
                faults.append(f"line {found.line_num}: {error}")
    except csv.Error as error:
        faults.append(f"line {found.line_num}: {error}")
    if not faults and not 1 <= len(people) <= MOST_ROWS:
        faults = [f"a list has 1 to {MOST_ROWS} people, not {len(people)}"]
    if faults:
        raise _faulty(faults)
    return tuple(people.values())


def _faulty(faults: Sequence[str]) -> UsageError:
    more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return UsageError(
        "STO-U004",
        f"the list cannot be used: {'; '.join(faults[:SHOWN])}{more}",
        hint="nothing was made; correct the list and run the same command again",
    )


def import_people(
    store: Store, data: Path, people: Sequence[Person], folder: Path, now: int
) -> tuple[str, ...]:
    """Make each person's account, role, group and connection file NAME.json.

    Returns the names of those whose file is new; the others had a good one.

    Raises:
        UsageError: ``STO-U004``: the server has never run, or a file of a person's name
            is none of ours; nothing was made then.
        OSError: a file cannot be written; those before it stand.
    """
    server = read_connection_file(data)
    places = [folder / f"{one.name}.json" for one in people]
    held = list(map(_held, places))
    strange = [
        place.name for place, one in zip(places, held, strict=True) if one is None
    ]
    if strange:
        raise _faulty([f"{name} is no connection file" for name in strange])
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = []
    for person, place, token in zip(people, places, held, strict=True):
        if _make(store, server, person, place, token or "", now):
            made.append(person.name)
        accounts.change_role(store, person.name, tokens.Role(person.role), now)
        accounts.join_group(store, person.name, person.group or "", now)
    return tuple(made)


def _held(place: Path) -> str | None:
    """Return the token of a connection file, "" where there is no file, else None."""
    try:
        return msgspec.json.decode(place.read_bytes(), type=ConnectionFile).token
    except FileNotFoundError:
        return ""
    except (OSError, msgspec.MsgspecError):
        return None


def _make(
    store: Store,
    server: ConnectionFile,
    person: Person,
    place: Path,
    held: str,
    now: int,
) -> bool:
    """Give a person a file with a token, unless what he holds is good, and his."""
    with store.write() as connection:
        with contextlib.suppress(DeniedError):
            if tokens.find_owner(connection, held, now).name == person.name:
                return False
        role, life = tokens.Role(person.role), person.days * tokens.DAY_S
        token = tokens.issue_token(connection, person.name, role, now, lifetime_s=life)
        # Before the commit: a token that nobody was given would stay good.
        msgspec.structs.replace(server, token=token).write(place)
    return True
