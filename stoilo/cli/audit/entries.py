"""`stoilo audit verify | show | prove | check | export`: what readers of a log do."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import platformdirs

from stoilo.audit.format.misbehaviour import (
    MAX_MISBEHAVIOUR_BYTES,
    check_misbehaviour,
    is_accusation,
)
from stoilo.audit.format.policy import (
    MAX_POLICY_BYTES,
    LogPolicy,
    parse_policies,
    parse_policy,
)
from stoilo.audit.log.fsck import LogReport, fsck_log
from stoilo.audit.read.export import export_log
from stoilo.audit.read.reader import LogView, check_evidence, open_log, verify_log
from stoilo.audit.read.search import find_entries, parse_query, prove_leaf, search_log
from stoilo.audit.read.source import read_url
from stoilo.cli.audit.again import Given, run_again
from stoilo.cli.audit.text import (
    describe_entries,
    record_of,
    say_misbehaviour,
    say_search,
    show_entry,
)
from stoilo.cli.output import FILE, JSON, read_file, say, say_refused
from stoilo.core.digests import check_digest
from stoilo.core.errors import (
    StoiloError,
    TrustError,
    UnreachableError,
    UsageError,
    show_plainly,
)
from stoilo.core.types import BOUNDS

_FILE_BYTES = 1024 * 1024
_WHOSE_KEY = "The key came from the log itself; pass --policy to pin the one you trust."


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
        JSON,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("words", metavar="INDEX|TASK|WORD...", nargs=-1)
@log_options
@click.option("--source", is_flag=True, help="Print the published source too.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="List so many at most of what WORDs find.",
)
@click.option("--again", is_flag=True, help="Run the task again here, and compare.")
@click.option("--case", type=FILE, help="The task's case, from its owner (--again).")
@click.option("--kwargs", help="Arguments it does not hold: JSON or @FILE (--again).")
@click.option(
    "--blob", type=FILE, multiple=True, help="A stored value they name (--again)."
)
@click.pass_context
def show(
    context: click.Context,
    words: tuple[str, ...],
    data: str | Path,
    policy: str | None,
    *,
    as_json: bool,
    source: bool,
    limit: int,
    again: bool,
    case: Path | None,
    kwargs: str | None,
    blob: tuple[Path, ...],
) -> None:
    """Show the entry at INDEX, all entries of a task, or list what WORDs find.

    A task is named by its id or commitment. Each entry is proven to lie under the signed
    checkpoint, and each record to be the one that its leaf names.

    WORDs are kind:K, commitment:HEX, digest:HEX, code:STO-…, key:ROLE, since:DAY and
    until:DAY. Several kinds mean any of them, several mentions any of them; kind, mention,
    since: and until: must all hold. Every entry of the log is read and the signed tree
    built again from them, so nothing that matches is left out.

    With --again a task that has ended is run once more in the sandbox, with the source,
    level, seed and arguments that its leaves name, and what comes is compared with what
    the log records. Exit code 0: the same; 4: something else (STO-L144); 3: this machine
    cannot run it as it was admitted.

    Example: stoilo audit show kind:refusals since:2027-01-01
    """
    if again:
        log = _open(data, policy)
        given = Given(case, kwargs, blob)
        record, text = run_again(log, words[0] if words else "", given)
        say(record, text, as_json=as_json)
        _say_whose_key(log, as_json)
        context.exit(FAULTY_EXIT if record["code"] else 0)
    if len(words) == 1 and ":" not in words[0] and not words[0].startswith("STO-"):
        log = _open(data, policy)
        places = find_entries(log, words[0])
        published = [at for at in places if at < log.size] or places[:1]
        entries = [log.entry(at) for at in published]
        shown = [show_entry(log, entry, with_source=source) for entry in entries]
        record = {"verified": True, "entries": [*map(record_of, shown)]}
        say(record, describe_entries(shown), as_json=as_json)
    else:
        query = parse_query(words)  # what it says wrong comes before what the log does
        log = _open(data, policy)
        say_search(search_log(log, query, limit=limit), as_json=as_json)
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
    record = {
        "index": found.index,
        "size": found.signed.checkpoint.size,
        "leaf": base64.b64encode(found.data).decode(),
        "proof": found.proof.decode(),
    }
    say(record, found.proof.decode().removesuffix("\n"), as_json=as_json)


@click.command()
@click.argument("proof", metavar="FILE|URL")
@click.option(
    "--policy", metavar="FILE|VKEY", required=True, help="Whose signatures to trust."
)
@click.option("--leaf", metavar="FILE", help="The leaf, if the proof carries none.")
@click.option("--record", metavar="FILE|URL", help="Must be the leaf's record.")
@click.option("--source", metavar="FILE|URL", help="Must be the record's source.")
@JSON
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
    """Verify one entry (a .tlog-proof file or its URL), or a proof of misbehaviour.

    The log is not asked; nothing is needed but its key. Exit code 0: the entry is in the
    log that the policy trusts, or the log has signed two histories; 4: not shown to be.
    """
    try:
        trusted, data = read_policy(policy), _read(proof, MAX_MISBEHAVIOUR_BYTES) or b""
        if is_accusation(data):
            say_misbehaviour(check_misbehaviour(data, trusted), as_json=as_json)
            return
        found = check_evidence(
            data,
            trusted,
            leaf=_read(leaf),
            record=_read(record),
            source=_read(source, BOUNDS.source_bytes),
        )
    except StoiloError as error:
        if not as_json:
            raise
        context.exit(say_refused(error))
    found = dataclasses.replace(found, source=None)  # the reader has it
    shown = {"verified": True, **record_of(found)}
    say(shown, describe_entries([found]), as_json=as_json)


@click.command()
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path))
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

    `stoilo audit verify`, `show` and `prove` read it.
    """
    trusted = None if policy is None else read_policy(policy)
    report = export_log(data, target, trusted, sources=_chosen(sources))
    text = (
        f"{target}: {report.size} leaves of {report.origin}, {report.records} records, "
        f"{report.sources} sources; {report.missing} records were not there."
    )
    say(report, text, as_json=as_json)


def _say_whose_key(log: LogView, as_json: bool) -> None:
    if log.own_policy and not as_json:
        click.echo(_WHOSE_KEY)


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
    """Return the bytes of a file or URL; None for no place."""
    if place is None:
        return None
    if place.startswith(("http://", "https://")):
        data = read_url(place, limit)
        if data is None:
            raise UnreachableError("STO-L002", f"{place} is not there")
        return data
    return read_file(Path(place), limit)


def read_policy(text: str) -> LogPolicy:
    """Return the policy of ``--policy``: a verifier key or a file's name.

    The file is a tlog-policy; older policies may follow it
    (`stoilo.audit.format.policy`).

    Raises:
        UsageError: ``STO-L003`` or ``STO-K001`` when it is malformed,
            ``STO-U004`` when the file cannot be read.
    """
    try:
        if "+" in text and not Path(text).exists():
            return parse_policy(f"log {text.strip()}\nquorum none\n".encode())
        with Path(text).open("rb") as file:
            return parse_policies(file.read(MAX_POLICY_BYTES + 1))
    except TrustError as error:
        raise UsageError(error.code, error.message, hint=error.hint) from error
    except OSError as error:
        raise UsageError(
            "STO-U004", f"the policy cannot be read: {error.strerror}"
        ) from error


FAULTY_EXIT = 4


@click.command()
@click.argument("location", metavar="DIR_OR_URL")
@click.option("--policy", metavar="FILE|VKEY", help="Whose signatures to trust.")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="List every fault with its file, its place and what would help (DIR only).",
)
@JSON
@click.pass_context
def verify(
    context: click.Context,
    location: str,
    *,
    policy: str | None,
    every: bool,
    as_json: bool,
) -> None:
    """Read every entry of a log and check it against its signed checkpoint.

    DIR_OR_URL is a server's data directory, a log directory, an exported bundle or a
    log's URL. Nothing is changed; the server may run meanwhile.
    Exit code 0: it holds; 4: tampered; 2: not a log; 7: not reachable.
    """
    try:
        trusted = None if policy is None else read_policy(policy)
        if every and location.startswith(("http://", "https://")):
            raise UsageError("STO-L001", "--all needs the log's own files, not a URL")
        report = (fsck_log if every else verify_log)(location, trusted)
    except StoiloError as error:
        if not as_json or every:
            raise
        context.exit(say_refused(error))
    shown = {"verified": report.is_sound, **dataclasses.asdict(report)}
    say(shown, render_report(report), as_json=as_json)
    if not report.is_sound:
        context.exit(FAULTY_EXIT)


def render_report(report: LogReport) -> str:
    """Return what a person reads: every finding, then what is known of the whole."""
    lines = []
    for one in report.findings:
        lines.append(f"{one.severity}: {_on_one_line(str(one))}")
        if one.remedy:
            lines.append(f"    {one.remedy}")
    if report.omitted:
        lines.append(f"… and {report.omitted} more findings")
    name = _on_one_line(report.origin or "(unnamed)")
    plural = "" if report.faults == 1 else "s"
    verdict = "holds" if report.is_sound else f"has {report.faults} fault{plural}"
    lines.append(
        f"The log {name} {verdict}: {report.size} leaves, "
        f"{report.tiles_checked} tiles checked."
    )
    lines.append(f"root {report.root}")
    if report.witnesses:
        lines.append(f"cosigned by {show_plainly(', '.join(report.witnesses))}")
    if report.unpublished:
        lines.append(f"{report.unpublished} acknowledged leaves await publication")
    if not report.is_proven and report.size:
        lines.append("No combination of copies leads to a signed root.")
    elif not report.is_sound:
        lines.append("The tree of the sound copies has the signed root.")
    if report.own_policy:
        lines.append(_WHOSE_KEY)
    return "\n".join(lines)


def _on_one_line(text: str) -> str:
    """Return foreign text, a file's name for example, as one harmless line."""
    return show_plainly(text).replace("\n", "\\n")
