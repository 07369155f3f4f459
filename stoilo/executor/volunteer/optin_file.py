"""Writing the volunteer's own opt-in file, and saying what the present ones mean.

Only the person at this computer uses this; the running volunteer merely reads
(`stoilo.executor.verifier.optin`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoilo.core.errors import StoiloError, UsageError
from stoilo.core.files import write_durably
from stoilo.executor.verifier.optin import OptIn, load_opt_in, parse_opt_in

NO_LIMIT: Final = 2**53
"""How an absent limit is read."""

PRIVATE_MODE: Final = 0o600
SYSTEM_MODE: Final = 0o644
"""A system-wide file must be readable by every volunteer on the computer."""

_SERVER_MARKS: Final = (
    "client_state.xml",  # BOINC's data directory
    "init_data.xml",  # a BOINC slot
    "boinc_finish_called",
    "host.json",  # our volunteer's `project` directory
)


@dataclass(frozen=True, slots=True)
class FileState:
    """One place where an opt-in may lie."""

    path: Path  # of the file
    exists: bool  # whether there is one
    opt_in: OptIn | None  # what it says, None without a usable file
    error: str  # why it cannot be used, empty when it can


def describe_file(path: Path) -> FileState:
    """Return what a volunteer would make of `path`; never raises for a bad file."""
    exists = os.path.lexists(path)
    try:
        opt_in = load_opt_in([path], server_writable=_server_folders(path))
    except StoiloError as error:
        return FileState(path, exists, None, str(error))
    return FileState(path, exists, opt_in if exists else None, "")


def read_own_file(path: Path) -> OptIn:
    """Return what `path` says, `pure` where it does not exist; raises ``STO-A060``."""
    return load_opt_in([path], server_writable=_server_folders(path))


def render_opt_in(opt_in: OptIn) -> bytes:
    """Return the file's text; `parse_opt_in` reads it back as the same."""
    return "".join(f"{line}\n" for line in _lines(opt_in)).encode()


def write_opt_in(path: Path, opt_in: OptIn, *, system: bool = False) -> None:
    """Write `opt_in` to `path` at once or not at all.

    Raises:
        UsageError: STO-A060, where a server can write or the disk refuses.
    """
    text = render_opt_in(opt_in)
    # What we write must be what every verifier reads, before it replaces anything.
    parse_opt_in(text)
    for folder in _server_folders(path):
        raise UsageError(
            "STO-A060",
            f"{path.name} would lie in {folder.name or folder}, where a server can write",
            hint="choose a place outside project and slot directories",
        )
    try:
        path.parent.mkdir(mode=0o755 if system else 0o700, parents=True, exist_ok=True)
        _check_folder(path.parent)
        write_durably(path, text, mode=SYSTEM_MODE if system else PRIVATE_MODE)
    except OSError as error:
        raise UsageError(
            "STO-A060", f"{path.name} cannot be written: {error.strerror}"
        ) from error


def _server_folders(path: Path) -> Sequence[Path]:
    home = path.absolute().parent.resolve()
    return [
        folder
        for folder in (home, *home.parents)
        if any((folder / mark).exists() for mark in _SERVER_MARKS)
    ]


def _lines(opt_in: OptIn) -> Iterator[str]:
    yield "# what this computer may be asked to run: docs/reference/opt-in.md"
    yield f"max_level = {_toml(opt_in.max_level)}"
    yield f"require_review = {_toml(opt_in.require_review)}"
    yield f"require_public_source = {_toml(opt_in.require_public_source)}"
    if opt_in.topics:
        yield f"topics = {_toml(sorted(opt_in.topics))}"
    if opt_in.limits is not None:
        yield ""
        yield "[limits]"
        for name, amount in dataclasses.asdict(opt_in.limits).items():
            if amount != NO_LIMIT:
                yield f"{name} = {amount}"


def _toml(value: object) -> str:
    """Return a flag, text or list as TOML, which differs from JSON by one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_folder(folder: Path) -> None:
    status = folder.stat()
    others = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
    if others or status.st_uid not in {0, os.geteuid()}:
        raise UsageError(
            "STO-A060",
            f"{folder.name} can be written by somebody else",
            hint=f"run: chmod go-w {folder.name}",
        )
