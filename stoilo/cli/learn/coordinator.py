"""`stoilo learn coordinator`: go on with trainings while their trainers are away."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import click

from stoilo.cli.output import FILE, FOLDER, JSON
from stoilo.client.address import Address, read_connection
from stoilo.client.connection import Connecting, connect
from stoilo.client.session import Journal
from stoilo.learn.coordinator.running import Coordinator, Limits
from stoilo.learn.coordinator.service import CoordinatorService
from stoilo.learn.core.checkpoint import lock_file

_USUAL = Limits()


@click.command()
@click.option("--state", type=FOLDER, required=True, help="Its directory.")
@click.option(
    "--connection",
    type=FILE,
    required=True,
    help="Connection file of the server; its token is not used.",
)
@click.option(
    "--token-file",
    "tokens",
    type=FILE,
    required=True,
    help="Lines of a name and a token: who may hand trainings over.",
)
@click.option(
    "--listen", default="127.0.0.1:57096", show_default=True, help="host:port."
)
@click.option("--tls-name", "names", multiple=True, help="Name that clients use.")
@click.option(
    "--most-runs", default=_USUAL.runs, show_default=True, help="Of one token."
)
@click.option(
    "--most-bytes", default=_USUAL.disk_bytes, show_default=True, help="Of one token."
)
@click.option(
    "--most-updates", default=_USUAL.updates, show_default=True, help="Of one training."
)
@JSON
def coordinator(
    state: Path,
    connection: Path,
    tokens: Path,
    listen: str,
    names: tuple[str, ...],
    *,
    most_runs: int,
    most_bytes: int,
    most_updates: int,
    as_json: bool,
) -> None:
    """Train what researchers hand over, with their tokens, until they take it up again.

    It executes none of their source: that goes to the server as their tasks. Each name of
    the token file gets a connection file in the directory; give it to him and to nobody
    else. Prints one JSON line when it answers. It may be killed at any moment and started
    again on the same directory and port. Ctrl-C and SIGTERM end it.
    """
    del as_json  # the line is JSON anyway; main renders errors
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold the tokens
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = lock_file(state / "lock")
    server = read_connection(connection)
    service = CoordinatorService(state.absolute(), listen, names, tokens)
    limits = Limits(most_runs, most_bytes, most_updates)
    try:
        asyncio.run(_serve(service, state.absolute(), server, limits))
    finally:
        service.close()
        os.close(lock)


async def _serve(
    service: CoordinatorService, state: Path, server: Address, limits: Limits
) -> None:
    def reach(token: str) -> Connecting:
        return connect(replace(server, token=token), journal=Journal(None))

    known = Coordinator(state, reach, limits)
    known.go_on()
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, done.set)
    threading.Thread(target=service.serve, args=(known, loop), daemon=True).start()
    files = {name: str(path) for name, path in service.files.items()}
    line = {"coordinator": service.address, "connections": files}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    await done.wait()
    await known.close()
