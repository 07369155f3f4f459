"""`stoilo policy review`: what waits for a person, and a person's signature.

The reviewer lists and fetches with a connection file, signs without any network, and hands
in what he signed. The operator enrolls reviewers in a server's data directory.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from stoilo.core.errors import UsageError
from stoilo.core.files import read_bounded
from stoilo.core.plaintext import show_plainly

if TYPE_CHECKING:
    from stoilo.client.wire import Wire


AnswerT = TypeVar("AnswerT")
DAY_S = 86_400
_MOST_DAYS = 366
_MOST_BYTES = 1024 * 1024  # of a signed review; the server takes less
_ENVELOPE = "review.json"
_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)

where = click.option(
    "--connection",
    envvar="STOILO_CONNECTION",
    help="The reviewer's connection file (default: $STOILO_CONNECTION).",
)
data_option = click.option(
    "--data", required=True, type=_FOLDER, help="Data directory of `stoilo up`."
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object.")
proposal_option = click.option(
    "--proposal",
    type=_FILE,
    help="Of a released project: write the list for the next ceremony here.",
)


class WaitingLine(msgspec.Struct, frozen=True):
    """One waiting task, in the list of all; times in s since 1970."""

    task_id: str
    level: str
    source_digest: str
    source_bytes: int
    submitter: str
    waiting_since: int
    expires_at: int
    own: bool


@click.group()
def review() -> None:
    """Read, sign and refuse tasks that wait for a reviewer.

    Reviewer: keygen once; then show, sign (offline), submit or refuse.
    Operator: enroll, withdraw, reviewers.
    """


def _call(
    connection: str | None, work: Callable[[Wire], Awaitable[AnswerT]]
) -> AnswerT:
    from stoilo.client.address import resolve_address  # noqa: PLC0415 - slow import
    from stoilo.client.wire import Wire  # noqa: PLC0415 - slow import

    async def inner() -> AnswerT:
        wire = Wire(resolve_address(connection))
        try:
            return await work(wire)
        finally:
            await wire.close()

    return asyncio.run(inner())


def _list_waiting(connection: str | None, *, as_json: bool) -> None:
    from stoilo.core.rpc import reviews_pb2 as pb  # noqa: PLC0415 - slow import

    answer = _call(
        connection, lambda wire: wire.call("ListReviews", pb.ListReviewsRequest())
    )
    lines = [
        WaitingLine(
            row.task_id,
            row.level,
            row.task_module,
            row.source_bytes,
            row.submitter,
            row.waiting_since,
            row.expires_at,
            row.own,
        )
        for row in answer.tasks
    ]
    if as_json:
        _print_json({"waiting": answer.waiting, "tasks": lines})
        return
    for line in lines:
        own = "  (your own: somebody else must sign)" if line.own else ""
        click.echo(
            show_plainly(
                f"{line.task_id}  {line.level:<8} {line.source_bytes:>7,} bytes  "
                f"since {_day(line.waiting_since)}, expires {_day(line.expires_at)}{own}"
            )
        )
    click.echo(f"{answer.waiting} waiting")


@review.command()
@click.argument("task_id", required=False)
@click.option("--output", type=_FOLDER, help="New folder for the files to sign.")
@where
@json_option
def show(
    task_id: str | None, output: Path | None, connection: str | None, as_json: bool
) -> None:
    """Show all that a review of TASK_ID covers; without one, list what waits.

    With --output the files are written for `sign`, which needs no network.
    """
    if task_id is None:
        _list_waiting(connection, as_json=as_json)
        return
    from stoilo.client.reviewing import (  # noqa: PLC0415 - needs an extra
        read_response,
        render_task,
        write_folder,
    )
    from stoilo.core.rpc import reviews_pb2 as pb  # noqa: PLC0415 - slow import

    request = pb.GetReviewRequest(task_id=task_id)
    task = read_response(
        _call(connection, lambda wire: wire.call("GetReview", request))
    )
    if output is not None:
        write_folder(task, output)
    if as_json:
        _print_json(
            {
                "request": task.request,
                "task_module": task.task_module.decode("utf-8", "backslashreplace"),
                "validator_module": task.validator_module.decode(
                    "utf-8", "backslashreplace"
                ),
                "folder": None if output is None else str(output),
            }
        )
        return
    click.echo(render_task(task))
    if output is not None:
        click.echo(
            f"\nfiles in {output}; read them, then, offline:\n"
            f"  stoilo policy review sign {output} --key FILE"
        )


@review.command()
@click.argument("folder", type=_FOLDER)
@click.option("--key", required=True, type=_FILE, help="Private key, of `keygen`.")
@click.option(
    "--days",
    default=30,
    show_default=True,
    type=click.IntRange(1, _MOST_DAYS),
    help="How long the review holds.",
)
@click.option(
    "--any-arguments",
    is_flag=True,
    help="Also for later tasks of this source, level and limits, whoever sends them.",
)
@click.option("--output", type=_FILE, help=f"Default: FOLDER/{_ENVELOPE}.")
@json_option
def sign(
    folder: Path,
    key: Path,
    days: int,
    any_arguments: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Sign what lies in FOLDER, of `show --output`. Needs no network.

    What is signed are the digests of the files as they lie there.
    """
    from stoilo.client.reviewing import (  # noqa: PLC0415 - needs an extra
        make_review,
        read_folder,
    )
    from stoilo.executor.verifier.statements import sign_review  # noqa: PLC0415 - needs an extra
    from stoilo.signer.key_files import read_private_key  # noqa: PLC0415 - extra

    task, private = read_folder(folder), read_private_key(key)
    made = make_review(
        task, int(time.time()) + days * DAY_S, any_arguments=any_arguments
    )
    text = sign_review(made, private, keyid=private.public.raw.hex())
    place = output or folder / _ENVELOPE
    _write(place, text.encode())
    if as_json:
        _print_json({"review": made, "file": str(place)})
        return
    arguments = "any arguments" if any_arguments else "these arguments"
    click.echo(f"signed until {_day(made.not_after)} for {arguments}: {place}")
    click.echo(
        f"hand it in: stoilo policy review submit {task.request.task_id} {place}"
    )


@review.command()
@click.argument("task_id")
@click.argument("file", type=_FILE)
@where
@json_option
def submit(task_id: str, file: Path, connection: str | None, as_json: bool) -> None:
    """Hand in the signed review FILE of TASK_ID; every task that it covers goes on."""
    from stoilo.core.rpc import reviews_pb2 as pb  # noqa: PLC0415 - slow import

    request = pb.SubmitReviewRequest(task_id=task_id, envelope=_read(file))
    answer = _call(connection, lambda wire: wire.call("SubmitReview", request))
    if as_json:
        _print_json({"task_id": task_id, "released": answer.released})
    else:
        click.echo(f"taken; {answer.released} task(s) go on")


@review.command()
@click.argument("task_id")
@click.option("--reason", required=True, help="Shown to the submitter.")
@where
@json_option
def refuse(task_id: str, reason: str, connection: str | None, as_json: bool) -> None:
    """End TASK_ID; its submitter reads the reason."""
    from stoilo.core.rpc import reviews_pb2 as pb  # noqa: PLC0415 - slow import

    request = pb.RefuseTaskRequest(task_id=task_id, reason=reason)
    answer = _call(connection, lambda wire: wire.call("RefuseTask", request))
    if as_json:
        _print_json({"task_id": task_id, "state": answer.state})
    else:
        click.echo(show_plainly(answer.state))


@review.command()
@click.option("--output", required=True, type=_FILE, help="New file, mode 0600.")
@json_option
def keygen(output: Path, as_json: bool) -> None:
    """Make a reviewer's key on this machine; prints the public half for the operator."""
    from stoilo.core.signatures import PrivateKey  # noqa: PLC0415 - needs an extra
    from stoilo.signer.key_files import write_private_file  # noqa: PLC0415 - extra

    if output.exists():
        raise UsageError(
            "STO-U003",
            f"{output.name} exists already",
            hint="a key is never overwritten; choose another name",
        )
    key = PrivateKey.generate()
    try:
        write_private_file(output, key.pem())
    except OSError as error:
        raise _cannot_write(output, error) from error
    public = key.public.raw.hex()
    if as_json:
        _print_json({"public_key": public, "file": str(output)})
    else:
        click.echo(public)


@review.command()
@data_option
@click.option("--name", required=True, help="Name of the reviewer's account.")
@click.option("--key", required=True, help="Public key, 64 hex digits, of `keygen`.")
@click.option(
    "--account",
    "accounts",
    multiple=True,
    help="Another account of the same person; its tasks he cannot review.",
)
@click.option(
    "--connection", "place", required=True, type=_FILE, help="New file for him, 0600."
)
@proposal_option
@json_option
def enroll(
    data: Path,
    name: str,
    key: str,
    accounts: tuple[str, ...],
    place: Path,
    proposal: Path | None,
    as_json: bool,
) -> None:
    """Make somebody a reviewer of the project in a data directory (operator).

    Reviewers of a released project are named in a ceremony: with --proposal the account
    is made here, and the list to sign is written.
    """
    from stoilo.server.operations.accounts import enroll as enter  # noqa: PLC0415 - needs an extra
    from stoilo.signer.key_files import write_private_file  # noqa: PLC0415 - extra

    connection = enter(data, name, key.strip().lower(), accounts, os.environ, proposal)
    text = msgspec.json.format(msgspec.json.encode(connection), indent=2)
    try:
        write_private_file(place, text + b"\n")
    except OSError as error:
        raise _cannot_write(place, error) from error
    if as_json:
        _print_json({"name": name, "key": key, "connection": str(place)})
    else:
        click.echo(f"{name} is a reviewer; give him {place}, and to nobody else")
        _say_proposed(proposal)


@review.command()
@data_option
@click.option("--key", required=True, help="Public key, 64 hex digits.")
@proposal_option
@json_option
def withdraw(data: Path, key: str, proposal: Path | None, as_json: bool) -> None:
    """Take a reviewer's key out of the release (operator).

    Executors that have the new metadata run nothing more on the strength of its reviews.
    """
    from stoilo.server.operations.accounts import withdraw as leave  # noqa: PLC0415 - an extra

    leave(data, key.strip().lower(), proposal)
    if as_json:
        _print_json({"key": key, "withdrawn": proposal is None})
    elif proposal is None:
        click.echo("withdrawn")
    _say_proposed(None if as_json else proposal)


def _say_proposed(proposal: Path | None) -> None:
    if proposal is not None:
        step = f"stoilo release request FOLDER --release DIR --reviewers {proposal}"
        click.echo(f"it counts once people have signed it: {step}")


@review.command()
@data_option
@json_option
def reviewers(data: Path, as_json: bool) -> None:
    """List the reviewers that the release names (operator)."""
    from stoilo.server.operations.accounts import reviewers_of  # noqa: PLC0415 - needs an extra

    named = reviewers_of(data)
    if as_json:
        _print_json(named)
        return
    for one in named:
        click.echo(show_plainly(f"{one.key}  {one.name}"))


def _read(place: Path) -> bytes:
    try:
        return read_bounded(place, _MOST_BYTES)
    except OSError as error:
        raise UsageError(
            "STO-U004", f"{place.name} cannot be read: {error.strerror}"
        ) from error


def _write(place: Path, data: bytes) -> None:
    try:
        place.write_bytes(data)
    except OSError as error:
        raise _cannot_write(place, error) from error


def _cannot_write(place: Path, error: OSError) -> UsageError:
    return UsageError("STO-U004", f"{place.name} cannot be written: {error.strerror}")


def _print_json(value: Any) -> None:  # noqa: ANN401 - whatever a command shows
    click.echo(msgspec.json.encode(value).decode())


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(min(seconds, 2**36), UTC).strftime("%Y-%m-%d %H:%M")
