"""`stoilo policy review`: what waits for a person, and a person's signature.

The reviewer lists and fetches with a connection file, signs without any network, and hands
in what he signed. The operator makes reviewers: `stoilo account add --for review`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from stoilo.cli.output import (
    CONNECTION,
    DAY_S,
    FILE,
    FOLDER,
    JSON,
    cannot_write,
    read_file,
    render_day,
    say,
)
from stoilo.client.address import resolve_address
from stoilo.client.reviewing import (
    digest_parts,
    make_review,
    read_folder,
    read_response,
    render_task,
    write_folder,
)
from stoilo.client.wire import Wire
from stoilo.core.errors import UsageError
from stoilo.core.rpc import reviews_pb2 as pb
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.statements import sign_review
from stoilo.signer.key_files import read_private_key, write_private_file

AnswerT = TypeVar("AnswerT")
_MOST_DAYS = 366
_MOST_BYTES = 1024 * 1024  # of a signed review; the server takes less
_ENVELOPE = "review.json"
_MINUTE = "%Y-%m-%d %H:%M"


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

    def __str__(self) -> str:
        """Return the line of the list."""
        own = "  (your own: somebody else must sign)" if self.own else ""
        since = render_day(self.waiting_since, _MINUTE)
        ends = render_day(self.expires_at, _MINUTE)
        return (
            f"{self.task_id}  {self.level:<8} {self.source_bytes:>7,} bytes  "
            f"since {since}, expires {ends}{own}"
        )


@click.group()
def review() -> None:
    """Read, sign and refuse tasks that wait for a reviewer.

    keygen once; then show, sign (offline) and submit, or refuse.
    """


def _call(
    connection: str | None, work: Callable[[Wire], Awaitable[AnswerT]]
) -> AnswerT:
    async def inner() -> AnswerT:
        wire = Wire(resolve_address(connection))
        try:
            return await work(wire)
        finally:
            await wire.close()

    return asyncio.run(inner())


def _list_waiting(connection: str | None, *, as_json: bool) -> None:
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
    text = "\n".join([*map(str, lines), f"{answer.waiting} waiting"])
    say({"waiting": answer.waiting, "tasks": lines}, text, as_json=as_json)


@review.command()
@click.argument("task_id", required=False)
@click.option("--output", type=FOLDER, help="New folder for the files to sign.")
@CONNECTION
@JSON
def show(
    task_id: str | None, output: Path | None, connection: str | None, as_json: bool
) -> None:
    """Show all that a review of TASK_ID covers; without one, list what waits.

    With --output the files are written for `sign`, which needs no network.
    """
    if task_id is None:
        _list_waiting(connection, as_json=as_json)
        return
    request = pb.GetReviewRequest(task_id=task_id)
    task = read_response(
        _call(connection, lambda wire: wire.call("GetReview", request))
    )
    text = render_task(task)
    if output is not None:
        write_folder(task, output)
        text += (
            f"\n\nfiles in {output}; read them, then, offline:\n"
            f"  stoilo policy review sign {output} --key FILE"
        )
    record = {
        "request": task.request,
        "task_module": task.task_module.decode("utf-8", "backslashreplace"),
        "validator_module": task.validator_module.decode("utf-8", "backslashreplace"),
        "folder": None if output is None else str(output),
    }
    say(record, text, as_json=as_json)


@review.command()
@click.argument("folder", type=FOLDER)
@click.option("--key", required=True, type=FILE, help="Private key, of `keygen`.")
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
@click.option("--output", type=FILE, help=f"Default: FOLDER/{_ENVELOPE}.")
@JSON
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
    task, private = read_folder(folder), read_private_key(key)
    made = make_review(
        task, int(time.time()) + days * DAY_S, any_arguments=any_arguments
    )
    text = sign_review(made, private, keyid=private.public.raw.hex())
    place = output or folder / _ENVELOPE
    try:
        place.write_bytes(text.encode())
    except OSError as error:
        raise cannot_write(place, error) from error
    arguments = "any arguments" if any_arguments else "these arguments"
    until = render_day(made.not_after, _MINUTE)
    signed = [f"{what:<17} {digest}" for what, digest in digest_parts(made).items()]
    say(
        {"review": made, "file": str(place)},
        "\n".join(signed) + f"\nsigned until {until} for {arguments}: {place}\n"
        f"hand it in: stoilo policy review submit {task.request.task_id} {place}",
        as_json=as_json,
    )


@review.command()
@click.argument("task_id")
@click.argument("file", type=FILE, required=False)
@click.option(
    "--refuse", metavar="REASON", help="End the task; its submitter reads why."
)
@CONNECTION
@JSON
def submit(
    task_id: str,
    file: Path | None,
    refuse: str | None,
    connection: str | None,
    as_json: bool,
) -> None:
    """Hand in the signed review FILE of TASK_ID, or --refuse the task.

    Every task that a review covers goes on.
    """
    if (file is None) == (refuse is None):
        raise UsageError("STO-U003", "name the signed FILE, or --refuse REASON")
    if file is None:
        no = pb.RefuseTaskRequest(task_id=task_id, reason=refuse)
        ended = _call(connection, lambda wire: wire.call("RefuseTask", no))
        record = {"task_id": task_id, "state": ended.state}
        say(record, ended.state, as_json=as_json)
        return
    envelope = read_file(file, _MOST_BYTES)
    yes = pb.SubmitReviewRequest(task_id=task_id, envelope=envelope)
    answer = _call(connection, lambda wire: wire.call("SubmitReview", yes))
    record = {"task_id": task_id, "released": answer.released}
    say(record, f"taken; {answer.released} task(s) go on", as_json=as_json)


@review.command()
@click.option("--output", required=True, type=FILE, help="New file, mode 0600.")
@JSON
def keygen(output: Path, as_json: bool) -> None:
    """Make a reviewer's key on this machine; prints the public half for the operator."""
    if output.exists():
        raise UsageError(
            "STO-U003",
            f"{output} exists already",
            hint="a key is never overwritten; choose another name",
        )
    key = PrivateKey.generate()
    try:
        write_private_file(output, key.pem())
    except OSError as error:
        raise cannot_write(output, error) from error
    public = key.public.raw.hex()
    say({"public_key": public, "file": str(output)}, public, as_json=as_json)
