"""`stoilo learn shard` and `cell`: serve trainings until told to stop."""

from __future__ import annotations

import json
import resource
import signal
import sys
from pathlib import Path

import click

from stoilo.cli.output import FOLDER, JSON
from stoilo.core.errors import UsageError
from stoilo.core.listen import parse_address
from stoilo.learn.cells.member import CellMember, check_private
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
    _harden()
    service = ShardService(data.absolute(), listen, names, project)
    _serve("shard", service, data)


@click.command()
@click.option("--data", type=FOLDER, required=True, help="The member's directory.")
@click.option("--rank", type=click.IntRange(min=0), help="Its place among --peers.")
@click.option(
    "--peers",
    default="",
    help="host:port of all members, by rank, with commas: the only cell it may be in.",
)
@click.option(
    "--listen",
    default="",
    help="host:port, of trainers and of links; by default the one among --peers.",
)
@click.option(
    "--private-network",
    "is_private",
    is_flag=True,
    help="Only the cell's machines are on this network: links are not encrypted.",
)
@JSON
def cell(
    data: Path,
    rank: int | None,
    peers: str,
    listen: str,
    is_private: bool,
    as_json: bool,
) -> None:
    """Be a member of a cell for who has the connection file.

    Prints one JSON line when it answers: address and connection file. It may be killed
    at any moment and started again on the same directory and port: the cell forms anew.
    Ctrl-C and SIGTERM end it.
    """
    del as_json  # as above
    addresses = [one.strip() for one in peers.split(",") if one.strip()]
    if bool(addresses) == (rank is None) or (rank or 0) >= max(1, len(addresses)):
        raise UsageError("STO-R090", "--rank names one of --peers, from 0 on")
    own = addresses[rank] if rank is not None else listen
    check_private([*addresses, listen or own], is_private=is_private)
    _harden()
    folder, host = data.absolute(), parse_address(own).host
    service = CellMember(folder, listen or own, names=(host,), peers=addresses)
    _serve("cell", service, data)


def _harden() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold the parameters
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))


def _serve(what: str, service: ShardService | CellMember, data: Path) -> None:
    try:
        file = str(data.absolute() / CONNECTION_FILE)
        line = {what: service.place.shard, "connection": file}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        service.run()
    finally:
        service.close()
