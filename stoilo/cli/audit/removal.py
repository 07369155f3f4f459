"""`stoilo audit revoke | retain`: withdraw what must not run, delete what need not be kept."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import click

from stoilo.cli.groups import require_extra
from stoilo.cli.output import DATA, JSON, now, say
from stoilo.core.errors import UsageError
from stoilo.core.statement import RevocationStatement
from stoilo.executor.verifier.targets import RevocationFile
from stoilo.server.data_directory import keys_of
from stoilo.server.operations.retention import Retained, What
from stoilo.server.operations.retention import retain as delete
from stoilo.server.revocation import wishes
from stoilo.signer.development import changes

WAIT_S = 30.0


@click.command()
@DATA
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
@JSON
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
    if look:
        _list(data, as_json=as_json)
        return
    if (remove or settle or replace_online_key) and not offline:
        raise UsageError(
            "STO-U003", "only the offline role can do this", hint="add --offline"
        )
    if gate:
        min_epoch = max(min_epoch, changes.certify_fresh_epoch(keys_of(data), now()))
    named = bool(epochs or digests or flavors or min_epoch > 1)
    made = None
    if named or not (settle or replace_online_key):
        made = wishes.wish(
            epochs=epochs, digests=digests, flavors=flavors, min_epoch=min_epoch
        )
    if offline:
        add, gone = (None, made) if remove else (made, None)
        keys = keys_of(data)
        listed = changes.settle_revocations(keys, now(), add=add, remove=gone)
        if replace_online_key:
            listed = changes.replace_online_key(keys, now())
        _show_offline(listed, as_json=as_json)
    elif made is not None:
        _withdraw_online(data, made, wait_s, as_json=as_json)


def _withdraw_online(
    data: Path, made: RevocationStatement, wait_s: float, *, as_json: bool
) -> None:
    """Store the wish and, beside a running server, wait until it is in force."""
    wanted = wishes.withdraw(data, made)
    if not wishes.is_running(data):
        text = "stored; in force when the server starts, before it issues work"
        say({"in_force": False, "sequence": None}, text, as_json=as_json)
        return
    sequence = wishes.wait_in_force(data, wanted, made, wait_s).sequence
    text = f"in force: revocation statement {sequence}, in the log"
    say({"in_force": True, "sequence": sequence}, text, as_json=as_json)


def _list(data: Path, *, as_json: bool) -> None:
    """Show what a project has withdrawn: offline, online, and what waits."""
    found = wishes.revocations_in_force(data)
    parts = {"offline": found.offline, "online": found.online, "waiting": found.waiting}
    lines = [
        f"offline list, online statements settled to {found.offline.settled}:",
        *_lines(found.offline),
    ]
    if found.online is not None:
        base = found.online.base
        head = f"online statement {found.online.sequence}, on offline list {base}:"
        lines += [head, *_lines(found.online)]
    if found.waiting is not None:
        lines += ["waiting for the server:", *_lines(found.waiting)]
    record = {name: one and _part(one) for name, one in parts.items()}
    say(record, "\n".join(lines), as_json=as_json)


def _show_offline(listed: RevocationFile, *, as_json: bool) -> None:
    head = f"published; online statements to {listed.settled} are settled:"
    record = {"in_force": True, "settled": listed.settled, "offline": _part(listed)}
    say(record, "\n".join([head, *_lines(listed)]), as_json=as_json)


def _part(made: RevocationFile | RevocationStatement) -> dict[str, object]:
    """Return what one part withdraws; of a statement also which it is, times in s."""
    names = ["epochs", "min_epoch", "digests", "flavors"]
    part = {name: getattr(made, name) for name in names}
    if getattr(made, "sequence", 0):
        part |= {name: getattr(made, name) for name in ("sequence", "time", "base")}
        part["issued_at"] = part.pop("time")
    return part


def _lines(part: RevocationFile | RevocationStatement) -> list[str]:
    lines = [
        *(f"  epoch {epoch}" for epoch in part.epochs),
        *([f"  every epoch below {part.min_epoch}"] if part.min_epoch > 1 else []),
        *(f"  digest {digest}" for digest in part.digests),
        *(f"  flavor {flavor}" for flavor in part.flavors),
    ]
    return lines or ["  nothing is withdrawn"]


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
@click.option(
    "--what",
    type=click.Choice([one.value for one in What]),
    required=True,
    help="What is to go.",
)
@click.option(
    "--before", metavar="YYYY-MM-DD", required=True, help="Of tasks final before (UTC)."
)
@JSON
def retain(data: Path, what: str, before: str, as_json: bool) -> None:
    """Delete sources, arguments, results or salts of old tasks, for good.

    Leaves and public records stay. The deletion itself becomes a leaf: at once where
    the server runs, else at its next start. `sources` are task and validator modules,
    also published ones; `arguments` include blobs that no other task names; `results`
    include texts of errors and captured output; `salts` are what ties commitments to
    tasks, and to accounts that nobody can use any more.
    """
    require_extra("server")
    done = delete(data, What(what), parse_day(before), now(), os.environ)
    say(done, render_report(done, before), as_json=as_json)


def parse_day(text: str) -> int:
    """Return the first second of a day (UTC); raises ``STO-U003``."""
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise UsageError("STO-U003", f"{text[:40]!r} is not a date") from error
    return int(day.timestamp())


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
