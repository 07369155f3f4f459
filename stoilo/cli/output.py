"""What commands share: common options, one way to print an answer, tables, new files."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stoilo.core.errors import StoiloError, UsageError, show_plainly

if TYPE_CHECKING:
    from collections.abc import Sequence

DAY_S = 86_400
SMALL_BYTES = 512 * 1024  # of keys, roots, policies and proofs
_LAST_DAY = 2**36  # s since 1970; a stranger's number may lie beyond any calendar

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)

DATA = click.option(
    "--data", required=True, type=FOLDER, help="Data directory of `stoilo up`."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
CONNECTION = click.option(
    "--connection",
    envvar="STOILO_CONNECTION",
    help="Connection file of the server (default: $STOILO_CONNECTION).",
)


def say(record: object, text: str, *, as_json: bool) -> None:
    """Print an answer: `record` as one JSON object, or `text`, where there is any.

    What steers a terminal is spelled out in the text.
    """
    if as_json:
        # json spells out lone surrogates, which a value may hold and UTF-8 cannot.
        click.echo(json.dumps(msgspec.to_builtins(record)))
    elif text:
        click.echo("\n".join(map(show_plainly, text.split("\n"))))


def say_refused(error: StoiloError) -> int:
    """Print, as one JSON object, what did not verify; returns the exit code."""
    fault = {"code": error.code, "message": error.message, "hint": error.hint}
    say({"verified": False, "error": fault}, "", as_json=True)
    return error.exit_code


def render_table(rows: Sequence[Sequence[object]]) -> str:
    """Return rows in columns."""
    texts = [[str(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in texts)


def now() -> int:
    """Return the time, s since 1970."""
    return int(time.time())


def render_day(seconds: int, form: str = "%Y-%m-%d") -> str:
    """Return a moment, s since 1970, as a date in UTC."""
    return datetime.fromtimestamp(min(seconds, _LAST_DAY), UTC).strftime(form)


def read_file(path: Path, most: int = SMALL_BYTES) -> bytes:
    """Return a file that the command line names; raises ``STO-U004``."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise UsageError(
            "STO-U004", f"{path} cannot be read: {error.strerror}"
        ) from error
    if len(data) > most:
        raise UsageError("STO-U004", f"{path} is larger than {most:,} bytes")
    return data


def cannot_write(path: Path, error: OSError) -> UsageError:
    """Return what a user learns of a file that could not be written."""
    return UsageError("STO-U004", f"{path} cannot be written: {error.strerror}")


def not_a_data_directory(data: Path) -> UsageError:
    """Return what a user learns of a folder that no server has used."""
    return UsageError(
        "STO-U004",
        f"{data} is not the data directory of a server",
        hint="start one with `stoilo up --data DIR`",
    )
