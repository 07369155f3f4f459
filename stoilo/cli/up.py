"""`stoilo up`: run a server until told to stop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from stoilo.cli.output import FOLDER, JSON
from stoilo.server.app.run import UpLine, run_server, settle_collector
from stoilo.server.app.task_server import Face
from stoilo.server.config import ServerConfig, load_config
from stoilo.server.engines.embedded.files.holders import Nodes

SWITCH_S = 0.0005
"""A call crosses many threads; behind one that reads a large value each crossing waits this
long for the interpreter. Python's 5 ms made submits beside hostile accounts 2 to 3 times
slower (`bench/hostile.py`)."""


@click.command()
@click.option(
    "--data",
    type=FOLDER,
    required=True,
    help="Directory that holds everything the server keeps.",
)
@click.option("--volunteers", type=click.IntRange(0, 64), help="Local volunteers.")
@click.option(
    "--engine",
    type=click.Choice(["embedded", "stock"]),
    help="Who hands out work: this server, or a stock BOINC project.",
)
@click.option(
    "--project-dir",
    type=click.Path(file_okay=False),
    help="Directory of the stock project.",
)
@click.option("--grpc", help="Researchers' address, host:port (0 = any free port).")
@click.option("--http", help="Volunteers' address, host:port (0 = any free port).")
@click.option("--http-certificate", help="PEM file; needed beyond loopback.")
@click.option("--http-key", help="PEM file of its key.")
@click.option("--tls-names", help="More names for the gRPC certificate, by comma.")
@click.option("--origin", help="Name of project and log, fixed at the first start.")
@click.option("--policy", help="File of the project's policy.")
@click.option("--log-policy", help="File naming the log's witnesses and their quorum.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    envvar="STOILO_LOG_FORMAT",
    help="How messages are written to stderr; json: one object a line.",
)
@JSON
def up(data: Path, as_json: bool, log_format: str, **flags: object) -> None:
    """Run a server; prints one JSON line when it is ready."""
    del as_json  # the line is JSON anyway; main renders errors
    handler = logging.StreamHandler(sys.stderr)
    kind = JsonLines if log_format == "json" else logging.Formatter
    handler.setFormatter(kind("stoilo up: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    config, _ = load_config(data.absolute(), flags, os.environ)

    def ready(line: UpLine) -> None:
        settle_collector()
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        sys.stdout.flush()

    sys.setswitchinterval(SWITCH_S)
    asyncio.run(run_server(config, ready, find_faces(), find_nodes(config)))


class JsonLines(logging.Formatter):
    """One JSON object a record: time (UTC), level, logger, message, and what was raised."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; what stands in a message can end none."""
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said)


def find_nodes(config: ServerConfig) -> Nodes | None:
    """Return the project's own nodes, None where the settings name none."""
    if not config.node:
        return None
    from stoilo.learn.store.place import read_place  # noqa: PLC0415 - for few projects
    from stoilo.learn.traffic.origin import Origin  # noqa: PLC0415

    return Origin(read_place(Path(config.node)), read_place(Path(config.dispatcher)))


def find_faces() -> tuple[Face, ...]:
    """Return the pages to mount; none, and a word about it, without the web extra."""
    try:
        from stoilo.web.console.routes import console_pages  # noqa: PLC0415 - extra
        from stoilo.web.routes import audit_pages  # noqa: PLC0415 - extra
    except ModuleNotFoundError as error:
        if error.name not in {"jinja2", "fido2"}:
            raise
        logging.getLogger(__name__).warning(
            "no pages at /audit/ and /console/: %s is missing (pip install 'stoilo[web]')",
            error.name,
        )
        return ()
    return (audit_pages, console_pages)
