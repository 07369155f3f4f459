"""`stoilo audit witness` and `key`: witnesses, and what they watch."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from stoilo.audit.format.note import VerifierKey


MAX_LOGS_BYTES = 1024 * 1024
_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("kind", type=click.Choice(["log", "witness"]))
@click.option("--data", type=_FOLDER, required=True, help="Its directory.")
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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
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
        from stoilo.audit.witness.keys import make_witness_key  # noqa: PLC0415 - extra

        if name is None:
            raise UsageError("STO-L110", "a witness has a name", hint="give --name")
        vkey = make_witness_key(data, name, algorithm).vkey
    click.echo(json.dumps({"name": name, "vkey": vkey}) if as_json else vkey)


def _log_key(data: Path, origin: str | None) -> tuple[str, str]:
    """Return name and verifier key of the log of a server's directory."""
    from stoilo.audit.format.note import KeyType, private_vkey, render_vkey  # noqa: PLC0415 - extra
    from stoilo.server.config import load_config  # noqa: PLC0415 - extra
    from stoilo.signer.key_files import ensure_key, make_private_directory  # noqa: PLC0415 - extra

    config, _ = load_config(data.absolute(), {"origin": origin}, os.environ)
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = make_private_directory(data / "keys")
    private = ensure_key(make_private_directory(keys / "online") / "log.pem").key
    return config.origin, render_vkey(
        private_vkey(config.origin, KeyType.ED25519, private)
    )


@click.command()
@click.option("--data", type=_FOLDER, required=True, help="The witness's directory.")
@click.option(
    "--listen",
    default="127.0.0.1:57090",
    show_default=True,
    help="host:port (0 = any).",
)
@click.option(
    "--log", "log_keys", multiple=True, help="Verifier key of a log to watch."
)
@click.option("--logs", type=_FILE, help="File of such keys, one in a line.")
@click.option("--certificate", type=_FILE, help="PEM file; needed beyond loopback.")
@click.option("--certificate-key", type=_FILE, help="PEM file of its key.")
@click.option("--json", "as_json", is_flag=True, help="Errors as JSON too.")
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
    from stoilo.audit.witness.keys import load_witness_key  # noqa: PLC0415 - extra
    from stoilo.audit.witness.process import (  # noqa: PLC0415 - extra
        WitnessSettings,
        run_witness,
    )

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
    from stoilo.audit.witness.keys import read_log_keys  # noqa: PLC0415 - extra

    lines = list(keys)
    if file is not None:
        try:
            with file.open("rb") as stream:
                text = stream.read(MAX_LOGS_BYTES + 1)
        except OSError as error:
            raise UsageError(
                "STO-U004", f"{file.name} cannot be read: {error.strerror}"
            ) from error
        if len(text) > MAX_LOGS_BYTES:
            raise UsageError("STO-U004", f"{file.name} is too large")
        lines += text.decode(errors="replace").splitlines()
    return read_log_keys(lines)
