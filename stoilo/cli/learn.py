"""`stoilo learn shard`: serve a shard of the parameter store until told to stop."""

from __future__ import annotations

import json
import resource
import signal
import sys
from pathlib import Path

import click

from stoilo.cli.output import FOLDER, JSON
from stoilo.learn.store.network import ShardService
from stoilo.learn.store.place import CONNECTION_FILE


@click.command()
@click.option("--data", type=FOLDER, required=True, help="The shard's directory.")
@click.option(
    "--listen",
    default="127.0.0.1:57095",
    show_default=True,
    help="host:port (0 = any).",
)
@click.option(
    "--tls-name",
    "names",
    multiple=True,
    help="Name that clients use; needed to listen on all addresses.",
)
@click.option(
    "--project",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A project's connection.json: values become its blobs, for tasks to name.",
)
@JSON
def shard(
    data: Path,
    listen: str,
    names: tuple[str, ...],
    project: Path | None,
    as_json: bool,
) -> None:
    """Keep values and vectors of trainings for who has the connection file.

    Prints one JSON line when it answers: address and connection file. It may be killed
    at any moment and started again on the same directory and port. Ctrl-C and SIGTERM
    end it.
    """
    del as_json  # the line is JSON anyway; main renders errors
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold the parameters
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    service = ShardService(data.absolute(), listen, names, project)
    try:
        file = str(data.absolute() / CONNECTION_FILE)
        line = {"shard": service.place.shard, "connection": file}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        service.run()
    finally:
        service.close()
