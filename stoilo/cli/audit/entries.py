"""`stoilo audit show | search | prove | check | export`: what readers of a log do."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import platformdirs

from stoilo.audit.format.policy import MAX_POLICY_BYTES, LogPolicy, vkey_policy
from stoilo.audit.format.policy_history import parse_policies
from stoilo.audit.read.evidence import check_evidence
from stoilo.audit.read.export import export_log
from stoilo.audit.read.prover import find_entries, prove_leaf
from stoilo.audit.read.search import parse_query, search_log
from stoilo.audit.read.source import read_url
from stoilo.audit.read.view import LogView, open_log
from stoilo.cli.audit.text import (
    render_entries,
    render_json,
    render_refusal,
    render_search,
    show_entry,
    show_evidence,
)
from stoilo.core.digests import check_digest
from stoilo.core.errors import StoiloError, TrustError, UnreachableError, UsageError
from stoilo.core.limits import BOUNDS
from stoilo.core.plaintext import show_plainly

_FILE_BYTES = 1024 * 1024


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--data``, ``--policy`` and ``--json``, the same for every reader."""
    options = (
        click.option(
            "--data",
            metavar="DIR|FILE|URL",
            envvar="STOILO_DATA",
            show_envvar=True,
            default=lambda: platformdirs.user_data_path("stoilo"),
            help="A server's data directory, a log directory, an exported bundle or a "
            "log's URL.",
        ),
        click.option(
            "--policy", metavar="FILE|VKEY", help="Whose signatures to trust."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("name", metavar="INDEX|TASK")
@log_options
@click.option("--source", is_flag=True, help="Print the published source too.")
def show(
    name: str, data: str | Path, policy: str | None, as_json: bool, source: bool
) -> None:
    """Show the entry at INDEX, or all entries of a task (its id or commitment).

    Each entry is proven to lie under the signed checkpoint, and each record to be the one
    that its leaf names.
    """
    log = _open(data, policy)
    places = find_entries(log, name)
    published = [at for at in places if at < log.size] or places[:1]
    entries = [log.entry(at) for at in published]
    shown = [show_entry(log, entry, with_source=source) for entry in entries]
    click.echo(render_entries(shown, as_json=as_json))
    _say_whose_key(log, as_json)


@click.command()
@click.argument("words", metavar="WORD...", nargs=-1)
@log_options
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
def search(
    words: tuple[str, ...],
    data: str | Path,
    policy: str | None,
    as_json: bool,
    limit: int,
) -> None:
    """Find entries: kind:K, commitment:HEX, digest:HEX, code:STO-…, key:ROLE, since:DAY.

    Several kinds mean any of them, several mentions any of them; kind, mention, since:
    and until: must all hold. Every entry of the log is read and the signed tree built
    again from them, so nothing that matches is left out.
    """
    query = parse_query(words)
    log = _open(data, policy)
    result = search_log(log, query, limit=limit)
    click.echo(render_search(result, as_json=as_json))
    _say_whose_key(log, as_json)


@click.command()
@click.argument("task", metavar="TASK_ID|INDEX")
@log_options
def prove(task: str, data: str | Path, policy: str | None, as_json: bool) -> None:
    """Print the proof that a task's admission (or the leaf at INDEX) is in the log.

    The text is a C2SP tlog-proof with the leaf in its `extra`; keep it as
    FILE.tlog-proof. `stoilo audit check` verifies it, without the log.
    """
    found = prove_leaf(data, task, None if policy is None else read_policy(policy))
    if not as_json:
        click.echo(found.proof.decode(), nl=False)
        return
    click.echo(
        json.dumps(
            {
                "index": found.index,
                "size": found.size,
                "leaf": base64.b64encode(found.leaf).decode(),
                "proof": found.proof.decode(),
            }
        )
    )


@click.command()
@click.argument("proof", metavar="FILE|URL")
@click.option(
    "--policy", metavar="FILE|VKEY", required=True, help="Whose signatures to trust."
)
@click.option("--leaf", metavar="FILE", help="The leaf, if the proof carries none.")
@click.option("--record", metavar="FILE|URL", help="Must be the leaf's record.")
@click.option("--source", metavar="FILE|URL", help="Must be the record's source.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def check(
    context: click.Context,
    proof: str,
    policy: str,
    leaf: str | None,
    record: str | None,
    source: str | None,
    as_json: bool,
) -> None:
    """Verify one entry: a .tlog-proof file (or its URL), without asking the log.

    Exit code 0: the entry is in the log that the policy trusts; 4: it is not shown to be.
    """
    try:
        found = check_evidence(
            _read(proof, BOUNDS.proof_bytes) or b"",
            read_policy(policy),
            leaf=_read(leaf),
            record=_read(record),
            source=_read(source, BOUNDS.source_bytes),
        )
    except StoiloError as error:
        if not as_json:
            raise
        click.echo(render_refusal(error))
        context.exit(error.exit_code)
    shown = show_evidence(found)
    click.echo(
        render_json(shown) if as_json else render_entries([shown], as_json=False)
    )


@click.command()
@click.argument("target", metavar="DIR|FILE.tar", type=click.Path(path_type=Path))
@log_options
@click.option(
    "--sources",
    metavar="all|none|DIGEST,…",
    default="none",
    show_default=True,
    help="Published sources to take along.",
)
def export(
    target: Path, data: str | Path, policy: str | None, as_json: bool, sources: str
) -> None:
    """Write a bundle that verifies offline: tiles, checkpoint, policy, records, sources.

    `stoilo audit verify`, `show`, `search` and `prove` read it.
    """
    trusted = None if policy is None else read_policy(policy)
    report = export_log(data, target, trusted, sources=_chosen(sources))
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(report)))
        return
    click.echo(
        f"{target}: {report.size} leaves of {show_plainly(report.origin)}, "
        f"{report.records} records, "
        f"{report.sources} sources; {report.missing} records were not there."
    )


def _say_whose_key(log: LogView, as_json: bool) -> None:
    if log.own_policy and not as_json:
        click.echo(
            "The key came from the log itself; pass --policy to pin the one you trust."
        )


def _chosen(sources: str) -> frozenset[str] | None:
    if sources in {"all", "none"}:
        return None if sources == "all" else frozenset()
    try:
        return frozenset(check_digest(one) for one in sources.split(","))
    except TrustError as error:
        raise UsageError(error.code, error.message) from error


def _open(data: str | Path, policy: str | None) -> LogView:

    return open_log(data, None if policy is None else read_policy(policy))


def _read(place: str | None, limit: int = _FILE_BYTES) -> bytes | None:
    """Return at most limit+1 bytes of a file or URL; None for no place."""
    if place is None:
        return None
    if place.startswith(("http://", "https://")):
        data = read_url(place, limit)
        if data is None:
            raise UnreachableError("STO-L002", f"{place} is not there")
        return data
    try:
        with Path(place).open("rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        raise UsageError(
            "STO-U004", f"{place} cannot be read: {error.strerror}"
        ) from error


def read_policy(text: str) -> LogPolicy:
    """Return the policy of ``--policy``: a verifier key or a file's name.

    The file is a tlog-policy; older policies may follow it
    (`stoilo.audit.format.policy_history`).

    Raises:
        UsageError: ``STO-L003``, ``STO-L004`` or ``STO-L060`` when it is malformed,
            ``STO-U004`` when the file cannot be read.
    """
    try:
        if "+" in text and not Path(text).exists():
            return vkey_policy(text)
        with Path(text).open("rb") as file:
            return parse_policies(file.read(MAX_POLICY_BYTES + 1))
    except TrustError as error:
        raise UsageError(error.code, error.message, hint=error.hint) from error
    except OSError as error:
        raise UsageError(
            "STO-U004", f"the policy cannot be read: {error.strerror}"
        ) from error
