"""`stoilo flavor publish` and `withdraw`: proposals that people sign; the server runs on."""

from __future__ import annotations

from pathlib import Path

import click

from stoilo.flavors.manifest import find_flavor

__all__ = ["publish", "withdraw"]

_FOLDER = click.Path(path_type=Path, file_okay=False)
_RELEASE = click.option(
    "--release", "base", type=_FOLDER, help="Published release, or the data directory."
)
_NOTE = click.option("--note", default="", help="Why, for those who will sign.")


@click.command()
@click.argument("folder", metavar="CEREMONY", type=_FOLDER)
@click.argument("build", metavar="DIR", type=_FOLDER)
@_RELEASE
@_NOTE
def publish(folder: Path, build: Path, base: Path | None, note: str) -> None:
    """Propose in CEREMONY to offer the flavor that was built in DIR.

    The same as `stoilo release request CEREMONY --build DIR`: review, sign, combine and
    publish follow. A running server offers the flavor once its release names it.

    Example: stoilo flavor publish STICK build/numeric --release /srv/stoilo
    """
    from stoilo.cli.release.propose import request  # noqa: PLC0415 - an extra

    words = [str(folder), "--build", str(build), *_common(base, note)]
    request.main(words, "stoilo flavor publish", standalone_mode=False)


@click.command()
@click.argument("folder", metavar="CEREMONY", type=_FOLDER)
@click.argument("name")
@_RELEASE
@_NOTE
def withdraw(folder: Path, name: str, base: Path | None, note: str) -> None:
    """Propose in CEREMONY to withdraw the flavor NAME: no task runs with it any more.

    The same as `stoilo release revoke CEREMONY --flavor ID --part NAME`; for the first hour,
    `stoilo audit revoke` withdraws it online, at once.

    Example: stoilo flavor withdraw STICK numeric --release /srv/stoilo
    """
    from stoilo.cli.release.propose import revoke  # noqa: PLC0415 - an extra

    flavor = find_flavor(name)
    words = [str(folder), "--flavor", flavor.digest, "--part", flavor.name]
    words += _common(base, note)
    revoke.main(words, "stoilo flavor withdraw", standalone_mode=False)


def _common(base: Path | None, note: str) -> list[str]:
    """Return the words that both proposals take."""
    words = ["--release", str(base)] if base else []
    return [*words, "--note", note] if note else words
