"""`stoilo audit witness` and `key`: witnesses, and what they watch."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from stoilo.audit.format.note import KeyType, VerifierKey, private_vkey, render_vkey
from stoilo.audit.witness.keys import load_witness_key, make_witness_key, read_log_keys
from stoilo.audit.witness.process import WitnessSettings, run_witness
from stoilo.cli.output import FILE, FOLDER, JSON, read_file, say
from stoilo.core.errors import UsageError
from stoilo.server.config import load_config
from stoilo.signer.key_files import ensure_key, make_private_directory

MAX_LOGS_BYTES = 1024 * 1024


@click.command()
@click.argument("kind", type=click.Choice(["log", "witness"]))
@click.option("--data", type=FOLDER, required=True, help="Its directory.")
@click.option(
    "--name",
    help="Its name, for example witness.example/w1; a log's as `stoilo up` will have it.",
)
@click.option(
    "--algorithm",
    type=click.Choice(["ed25519", "ml-dsa-44"]),
    default="ed25519",
    show_default=True,
    help="Of a new witness's key.",
)
@JSON
def key(
    kind: str, data: Path, name: str | None, algorithm: str, *, as_json: bool
) -> None:
    """Print the verifier key of a project's log or of a witness; made if there is none.

    Witnesses need the log's key before the project's first start, and the project needs
    theirs. Example: stoilo audit key witness --data witness --name witness.example/w1
    """
    if kind == "log":
        name, vkey = _log_key(data, name)
    else:
        if name is None:
            raise UsageError("STO-L110", "a witness has a name", hint="give --name")
        vkey = make_witness_key(data, name, algorithm).vkey
    say({"name": name, "vkey": vkey}, vkey, as_json=as_json)


def _log_key(data: Path, origin: str | None) -> tuple[str, str]:
    """Return name and verifier key of the log of a server's directory."""
    config, _ = load_config(data.absolute(), {"origin": origin}, os.environ)
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = make_private_directory(data / "keys")
    private = ensure_key(make_private_directory(keys / "online") / "log.pem").key
    return config.origin, render_vkey(
        private_vkey(config.origin, KeyType.ED25519, private)
    )


@click.command()
@click.option("--data", type=FOLDER, required=True, help="The witness's directory.")
@click.option(
    "--listen",
    default="127.0.0.1:57090",
    show_default=True,
    help="host:port (0 = any).",
)
@click.option(
    "--log", "log_keys", multiple=True, help="Verifier key of a log to watch."
)
@click.option("--logs", type=FILE, help="File of such keys, one in a line.")
@click.option("--certificate", type=FILE, help="PEM file; needed beyond loopback.")
@click.option("--certificate-key", type=FILE, help="PEM file of its key.")
@JSON
def witness(
    data: Path,
    listen: str,
    log_keys: tuple[str, ...],
    logs: Path | None,
    certificate: Path | None,
    certificate_key: Path | None,
    as_json: bool,
) -> None:
    """Cosign the checkpoints of logs, as long as each only ever grows.

    Make a key first (`stoilo audit key witness`). Prints one JSON line when it
    answers: its URL and its verifier key. SIGHUP reads the file of logs again; Ctrl-C
    and SIGTERM end it.
    """
    del as_json  # the line is JSON anyway; main renders errors
    settings = WitnessSettings(
        data=data,
        listen=listen,
        logs=lambda: _read_logs(log_keys, logs),
        certificate=certificate,
        certificate_key=certificate_key,
    )
    vkey = load_witness_key(data).vkey

    def ready(url: str) -> None:
        sys.stdout.write(json.dumps({"url": url, "vkey": vkey}) + "\n")
        sys.stdout.flush()

    run_witness(settings, ready)


def _read_logs(keys: tuple[str, ...], file: Path | None) -> tuple[VerifierKey, ...]:
    """Return the keys from the command line and from the file."""
    lines = list(keys)
    if file is not None:
        text = read_file(file, MAX_LOGS_BYTES)
        lines += text.decode(errors="replace").splitlines()
    return read_log_keys(lines)
