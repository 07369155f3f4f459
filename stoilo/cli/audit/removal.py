"""`stoilo audit revoke | retain`: withdraw what must not run, delete what need not be kept."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stoilo.cli.extras import require_extra
from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from stoilo.core.statement import RevocationStatement
    from stoilo.executor.verifier.targets import RevocationFile
    from stoilo.server.operations.retention import Retained


_FOLDER = click.Path(path_type=Path, file_okay=False)
WAIT_S = 30.0

data_option = click.option(
    "--data", required=True, type=_FOLDER, help="Data directory of `stoilo up`."
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


@click.command()
@data_option
@click.option("--epoch", "epochs", type=int, multiple=True, help="A gate epoch.")
@click.option("--min-epoch", type=int, default=1, help="Every gate epoch below this.")
@click.option("--digest", "digests", multiple=True, help="SHA-256 of anything.")
@click.option("--flavor", "flavors", multiple=True, help="Id of a flavor.")
@click.option(
    "--gate",
    is_flag=True,
    help="Every gate epoch certified so far; certifies a fresh one (the gate's offline key).",
)
@click.option("--offline", is_flag=True, help="By the offline revocation key.")
@click.option("--remove", is_flag=True, help="Take back instead (needs --offline).")
@click.option(
    "--settle",
    is_flag=True,
    help="Take over into the offline list what was withdrawn online (needs --offline).",
)
@click.option(
    "--replace-online-key",
    is_flag=True,
    help="Also make a new key for withdrawing online (needs --offline).",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=WAIT_S,
    show_default=True,
    help="How long to wait for a running server, s.",
)
@click.option(
    "--list", "look", is_flag=True, help="Show what is withdrawn, and change nothing."
)
@json_option
def revoke(
    data: Path,
    epochs: tuple[int, ...],
    min_epoch: int,
    digests: tuple[str, ...],
    flavors: tuple[str, ...],
    *,
    gate: bool,
    offline: bool,
    remove: bool,
    settle: bool,
    replace_online_key: bool,
    wait_s: float,
    look: bool,
    as_json: bool,
) -> None:
    """Withdraw epochs, flavors, or anything by its digest: source, account, reviewer key.

    Online, by default: only adds; a running server issues a new logged statement at once,
    and every workunit from then on carries it. With --offline: publishes a new offline
    list, which takes over everything withdrawn online, and can take back (--remove).
    """
    from stoilo.server.data_directory import keys_of  # noqa: PLC0415 - an extra
    from stoilo.server.revocation.wishes import wish  # noqa: PLC0415 - an extra
    from stoilo.signer.development import changes  # noqa: PLC0415 - an extra

    if look:
        _list(data, as_json=as_json)
        return
    if (remove or settle or replace_online_key) and not offline:
        raise UsageError(
            "STO-U003", "only the offline role can do this", hint="add --offline"
        )
    if gate:
        min_epoch = max(min_epoch, changes.certify_fresh_epoch(keys_of(data), _now()))
    named = bool(epochs or digests or flavors or min_epoch > 1)
    made = None
    if named or not (settle or replace_online_key):
        made = wish(
            epochs=epochs, digests=digests, flavors=flavors, min_epoch=min_epoch
        )
    if offline:
        add, gone = (None, made) if remove else (made, None)
        keys = keys_of(data)
        listed = changes.settle_revocations(keys, _now(), add=add, remove=gone)
        if replace_online_key:
            listed = changes.replace_online_key(keys, _now())
        _show_offline(listed, as_json=as_json)
    elif made is not None:
        _withdraw_online(data, made, wait_s, as_json=as_json)


def _withdraw_online(
    data: Path, made: RevocationStatement, wait_s: float, *, as_json: bool
) -> None:
    """Store the wish and, beside a running server, wait until it is in force."""
    from stoilo.server.revocation import wishes  # noqa: PLC0415 - an extra

    wanted = wishes.withdraw(data, made)
    if not wishes.is_running(data):
        if as_json:
            _print_json({"in_force": False, "sequence": None})
        else:
            click.echo("stored; in force when the server starts, before it issues work")
        return
    statement = wishes.wait_in_force(data, wanted, made, wait_s)
    if as_json:
        _print_json({"in_force": True, "sequence": statement.sequence})
    else:
        click.echo(f"in force: revocation statement {statement.sequence}, in the log")


def _list(data: Path, *, as_json: bool) -> None:
    """Show what a project has withdrawn: offline, online, and what waits."""
    from stoilo.server.revocation.wishes import revocations_in_force  # noqa: PLC0415 - an extra

    found = revocations_in_force(data)
    parts = {"offline": found.offline, "online": found.online, "waiting": found.waiting}
    if as_json:
        _print_json({name: one and _part(one) for name, one in parts.items()})
        return
    click.echo(f"offline list, online statements settled to {found.offline.settled}:")
    _show(found.offline)
    if found.online is not None:
        base = found.online.base
        click.echo(f"online statement {found.online.sequence}, on offline list {base}:")
        _show(found.online)
    if found.waiting is not None:
        click.echo("waiting for the server:")
        _show(found.waiting)


def _show_offline(listed: RevocationFile, *, as_json: bool) -> None:
    if as_json:
        shown = {"settled": listed.settled, "offline": _part(listed)}
        _print_json({"in_force": True, **shown})
        return
    click.echo(f"published; online statements to {listed.settled} are settled:")
    _show(listed)


def _part(made: RevocationFile | RevocationStatement) -> dict[str, object]:
    """Return what one part withdraws; of a statement also which it is, times in s."""
    names = ["epochs", "min_epoch", "digests", "flavors"]
    part = {name: getattr(made, name) for name in names}
    if getattr(made, "sequence", 0):
        part |= {name: getattr(made, name) for name in ("sequence", "time", "base")}
        part["issued_at"] = part.pop("time")
    return part


def _show(part: RevocationFile | RevocationStatement) -> None:
    """Print one part, a line each."""
    lines = [
        *(f"  epoch {epoch}" for epoch in part.epochs),
        *([f"  every epoch below {part.min_epoch}"] if part.min_epoch > 1 else []),
        *(f"  digest {digest}" for digest in part.digests),
        *(f"  flavor {flavor}" for flavor in part.flavors),
    ]
    click.echo("\n".join(lines or ["  nothing is withdrawn"]))


def _now() -> int:
    return int(time.time())


def _print_json(value: object) -> None:
    click.echo(msgspec.json.encode(value).decode())


KINDS = ("sources", "arguments", "results", "salts")


@click.command()
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(path_type=Path),
    envvar="STOILO_DATA",
    show_envvar=True,
    required=True,
    help="Data directory of the server, running or not.",
)
@click.option("--what", type=click.Choice(KINDS), required=True, help="What is to go.")
@click.option(
    "--before", metavar="YYYY-MM-DD", required=True, help="Of tasks final before (UTC)."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def retain(data: Path, what: str, before: str, as_json: bool) -> None:
    """Delete sources, arguments, results or salts of old tasks, for good.

    Leaves and public records stay. The deletion itself becomes a leaf: at once where
    the server runs, else at its next start. `sources` are task and validator modules,
    also published ones; `arguments` include blobs that no other task names; `results`
    include texts of errors and captured output; `salts` are what ties commitments to
    tasks, and to accounts that nobody can use any more.
    """
    require_extra("server")
    from stoilo.server.operations.retention import What  # noqa: PLC0415 - loads the server
    from stoilo.server.operations.retention import retain as delete  # noqa: PLC0415

    time_s = parse_day(before)
    done = delete(data, What(what), time_s, _now(), os.environ)
    click.echo(render_json(done) if as_json else render_report(done, before))


def parse_day(text: str) -> int:
    """Return the first second of a day (UTC); raises ``STO-U003``."""
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise UsageError("STO-U003", f"{text[:40]!r} is not a date") from error
    return int(day.timestamp())


def render_json(done: Retained) -> str:
    """Return the machine's form of what was done."""
    return json.dumps(dataclasses.asdict(done))


def render_report(done: Retained, before: str) -> str:
    """Return what a person reads of what was done."""
    if not done.count:
        return f"Nothing to delete: no {done.what} of tasks final before {before}."
    lines = [f"Deleted {done.count} {done.what} of tasks final before {before}."]
    if done.published:
        lines.append(f"{len(done.published)} published sources are gone too.")
    lines.append(
        "The log tells of it: at once where the server runs, else when it starts."
    )
    return "\n".join(lines)
