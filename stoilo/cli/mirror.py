"""`stoilo mirror`: a data server that holds a project's shared files by digest."""

from __future__ import annotations

import dataclasses
import json
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from stoilo.core.errors import UnreachableError, UsageError

if TYPE_CHECKING:
    from stoilo.server.mirror.pull import Origin, Synced

__all__ = ["mirror"]

GB: Final = 10**9
KEY_BYTES: Final = 200
_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)
_FROM = click.option(
    "--from", "url", required=True, help="The project's master URL, with final slash."
)
_KEY = click.option(
    "--key-file",
    type=_FILE,
    required=True,
    help="File with what `stoilo mirror key` printed.",
)
_DIR = click.option(
    "--dir", "folder", type=_FOLDER, required=True, help="Folder of the files."
)
_MOST = click.option(
    "--most",
    type=click.FloatRange(min=0),
    default=50.0,
    show_default=True,
    help="Largest sum of the files, GB.",
)
_CA = click.option("--ca", type=_FILE, help="Certificates to trust for --from.")


@click.group()
def mirror() -> None:
    """Hold a project's shared files by digest, so that hosts fetch them here."""


@mirror.command()
@click.option(
    "--data", type=_FOLDER, required=True, help="Data directory of the project."
)
def key(data: Path) -> None:
    """Print the key that the project's mirrors need; make it on first use.

    Who has it can list and read every file that tasks share. Send it to the keepers of
    mirrors by a way that you trust.
    """
    from stoilo.server.engines.embedded.people.accounts import (  # noqa: PLC0415 - heavy
        load_secret,
    )

    if not (data / "engine").is_dir():
        raise UsageError(
            "STO-U004",
            f"{data.name or data} is not the data directory of a server",
            hint="start one with `stoilo up --data DIR`",
        )
    click.echo(load_secret(data / "engine" / "mirror.secret").hex())


@mirror.command()
@_FROM
@_KEY
@_DIR
@_MOST
@_CA
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def sync(
    url: str,
    *,
    key_file: Path,
    folder: Path,
    most: float,
    ca: Path | None,
    as_json: bool,
) -> None:
    """Bring a folder up to date once; any web server can serve it.

    Files are checked against their digests before they get their names. What the project
    dropped goes. Exit 7 when a file could not be had; the next run goes on.

    Example: stoilo mirror sync --from https://project.example/ --key-file key --dir files
    """
    from stoilo.server.mirror import pull, shelf  # noqa: PLC0415 - heavy

    with _origin(url, key_file, ca) as origin:
        done = pull.sync(origin, shelf.Shelf(folder), int(most * GB))
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(done)))
    else:
        click.echo(_text(done))
    if done.failed:
        raise UnreachableError(
            "STO-B056",
            f"{done.failed} files could not be had",
            hint="run it again: it goes on where it stopped",
        )


@mirror.command()
@_FROM
@_KEY
@_DIR
@_MOST
@_CA
@click.option(
    "--listen", default="127.0.0.1:57091", show_default=True, help="host:port; 0: any."
)
@click.option(
    "--every",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="Pause between two looks at the project's list, s.",
)
def serve(
    url: str,
    *,
    key_file: Path,
    folder: Path,
    most: float,
    ca: Path | None,
    listen: str,
    every: float,
) -> None:
    """Serve a folder over HTTP and keep it up to date, until SIGTERM.

    Prints one JSON object when it serves: {"url": …}. It speaks plain HTTP: put a web
    server with a certificate before it, or let that serve the folder itself.

    Example: stoilo mirror serve --from https://project.example/ --key-file key --dir files
    """
    from stoilo.server.http.web_server import listen as bind  # noqa: PLC0415 - heavy
    from stoilo.server.mirror import serving, shelf  # noqa: PLC0415 - heavy

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    listener = bind(listen)
    place = shelf.Shelf(folder)
    place.write_index()
    with _origin(url, key_file, ca) as origin:
        keeper = serving.Keeper(origin, place, int(most * GB), every, _tell)
        keeper.start()
        try:
            _serve(serving.create_mirror_app(folder), listener)
        finally:
            keeper.stop()


def _serve(app: object, listener: object) -> None:
    """Serve until a signal says stop."""
    import socket  # noqa: PLC0415 - heavy with the next

    import uvicorn  # noqa: PLC0415 - heavy

    from stoilo.server.http.web_server import GRACE_S, WebServer, bracket  # noqa: PLC0415

    assert isinstance(listener, socket.socket)  # noqa: S101 - made by our caller
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]  # an ASGI application
        log_level="warning",
        access_log=False,
        lifespan="off",
        proxy_headers=False,
        timeout_graceful_shutdown=int(GRACE_S),
    )
    server = WebServer(config)

    def stop(*_: object) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    listener.listen(1024)
    host, port = listener.getsockname()[:2]
    click.echo(json.dumps({"url": f"http://{bracket(host)}:{port}/"}))
    server.run(sockets=[listener])


def _origin(url: str, key_file: Path, ca: Path | None) -> Origin:
    """Return the project."""
    from stoilo.server.mirror.pull import Origin  # noqa: PLC0415 - heavy

    if not url.startswith(("http://", "https://")) or not url.endswith("/"):
        raise UsageError("STO-U003", "--from is a URL with a final slash")
    try:
        with key_file.open("rb") as stream:
            said = stream.read(KEY_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise UsageError(
            "STO-U003", f"the key file cannot be read (errno {error.errno})"
        ) from error
    if not said.isalnum():
        raise UsageError("STO-U003", "the key file holds no key")
    return Origin(url, said, ca=ca)


def _tell(done: Synced) -> None:
    """Say on stderr what a round did, if it did something."""
    if done.fetched or done.evicted or done.failed:
        click.echo(_text(done), err=True)


def _text(done: Synced) -> str:
    """Return what a round did, in words."""
    return (
        f"{done.fetched} fetched, {done.evicted} dropped, "
        f"{done.left_out} without room, {done.failed} not to be had"
    )
