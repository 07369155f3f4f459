"""A task under review as a folder: what a reviewer reads and, offline, signs.

    request.json         everything but the sources and arguments
    task_module.py       the bytes that would run
    validator_module.py  the bytes that would judge results on the server
    arguments.bin        the encoded arguments

The folder travels to the machine that holds the reviewer's key. What is signed are digests
of the files as they lie there, so the server has no say in it: where it showed other bytes
than it would admit, the signature fits nothing.
"""

from __future__ import annotations

import dataclasses
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stoilo.core.codec.json_values import render_json_value
from stoilo.core.codec.skeleton import decode
from stoilo.core.digests import check_digest, content_digest
from stoilo.core.errors import StoiloError, UsageError, show_plainly
from stoilo.core.signatures import parse_strict_json
from stoilo.core.types import BOUNDS, RunLimits
from stoilo.executor.verifier.statements import ANY_ARGUMENTS, Review, digest_arguments

if TYPE_CHECKING:
    from stoilo.core.rpc import reviews_pb2 as pb


FORMAT = "stoilo-review-request/1"
REQUEST, ARGUMENTS = "request.json", "arguments.bin"
TASK_MODULE, VALIDATOR_MODULE = "task_module.py", "validator_module.py"
_SHOWN_ARGUMENTS = 4_000  # characters


class ReviewRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``request.json``."""

    format: str  # of this file
    task_id: str  # the task
    entry: str  # function that is called with one dict
    init_entry: str  # initial validator, empty for none
    compare_entry: str  # comparator, empty for equality
    level: str  # name of the level
    flavor: str  # id of the flavor's manifest
    limits: RunLimits  # what a run may use
    # digests of the blobs that the arguments refer to; their content is not here
    blobs: tuple[str, ...]
    submitter: str  # salted commitment to the account
    map_items: int  # 0 = one call
    publish_source: bool  # whether the submitter lets the source be published


@dataclasses.dataclass(frozen=True, slots=True)
class TaskUnderReview:
    """A request with the bytes that it is about; hostile throughout."""

    request: ReviewRequest
    task_module: bytes
    validator_module: bytes
    arguments: bytes


def read_response(answer: pb.GetReviewResponse) -> TaskUnderReview:
    """Return a server's answer as a task under review."""
    limits = {
        field.name: getattr(answer.limits, field.name)
        for field in dataclasses.fields(RunLimits)
    }
    request = ReviewRequest(
        format=FORMAT,
        task_id=answer.task_id,
        entry=answer.entry,
        init_entry=answer.init_entry,
        compare_entry=answer.compare_entry,
        level=answer.level,
        flavor=answer.flavor,
        limits=RunLimits(**limits),
        blobs=tuple(answer.blobs),
        submitter=answer.submitter,
        map_items=answer.map_items,
        publish_source=answer.publish_source,
    )
    return TaskUnderReview(
        request, answer.task_module, answer.validator_module, answer.arguments
    )


def list_files(task: TaskUnderReview) -> dict[str, bytes]:
    """Return the folder's files by name."""
    text = msgspec.json.format(msgspec.json.encode(task.request), indent=2)
    return {
        REQUEST: text + b"\n",
        TASK_MODULE: task.task_module,
        VALIDATOR_MODULE: task.validator_module,
        ARGUMENTS: task.arguments,
    }


def pack_folder(task: TaskUnderReview, name: str) -> bytes:
    """Return a ZIP file of the folder `name`; the same task gives the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, data in list_files(task).items():
            entry = zipfile.ZipInfo(f"{name}/{file}")
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, data)
    return packed.getvalue()


def digest_parts(review: Review) -> dict[str, str]:
    """Return the digests that are signed, by what they are about, to compare by eye."""
    return {
        "task module": review.task_module,
        "validator module": review.validator_module,
        "arguments": review.arguments,
    }


def write_folder(task: TaskUnderReview, folder: Path) -> None:
    """Write the files into a new `folder`; raises ``STO-U003`` when it is not new."""
    try:
        folder.mkdir(mode=0o700, parents=True)
        for name, data in list_files(task).items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise UsageError(
            "STO-U003",
            f"{folder} cannot be made: {error.strerror}",
            hint="name a folder that does not exist yet",
        ) from error


def read_folder(folder: Path) -> TaskUnderReview:
    """Return what lies in `folder`; raises ``STO-U004`` for anything else."""
    try:
        document = parse_strict_json(
            _read(folder / REQUEST), max_bytes=BOUNDS.metadata_bytes, what=REQUEST
        )
        request = msgspec.convert(document, type=ReviewRequest)
        for blob in request.blobs:
            check_digest(blob)
    except msgspec.ValidationError as error:
        raise UsageError("STO-U004", f"{REQUEST} is malformed: {error}") from error
    if request.format != FORMAT:
        raise UsageError("STO-U004", f"{REQUEST} is of another format")
    return TaskUnderReview(
        request,
        _read(folder / TASK_MODULE),
        _read(folder / VALIDATOR_MODULE),
        _read(folder / ARGUMENTS),
    )


def make_review(
    task: TaskUnderReview, not_after: int, *, any_arguments: bool = False
) -> Review:
    """Return what to sign for exactly these bytes.

    Args:
        task: as it was read.
        not_after: when the review ends, Unix seconds.
        any_arguments: sign for every later task of the same source, level and limits.
    """
    request = task.request
    named = digest_arguments(content_digest(task.arguments), request.blobs)
    return Review(
        task_module=content_digest(task.task_module),
        validator_module=content_digest(task.validator_module),
        level=request.level,
        flavor=request.flavor,
        limits=request.limits,
        arguments=ANY_ARGUMENTS if any_arguments else named,
        not_after=not_after,
    )


def render_task(task: TaskUnderReview) -> str:
    """Return the task as text that cannot command a terminal or hide characters."""
    return "\n".join(_lines(task))


def _lines(task: TaskUnderReview) -> Iterator[str]:
    request, limits = task.request, task.request.limits
    yield f"task      {show_plainly(request.task_id)}"
    yield f"submitter {show_plainly(request.submitter)}"
    yield f"level     {show_plainly(request.level)}, flavor {request.flavor}"
    yield f"limits    {limits}"
    calls = f"{request.map_items} calls" if request.map_items else "one call"
    yield f"entry     {show_plainly(request.entry)}, {calls}"
    published = "may be published" if request.publish_source else "stays unpublished"
    yield f"source    sha256 {content_digest(task.task_module)}, {published}"
    yield f"arguments {_show_arguments(task.arguments)}"
    yield from (f"blob      {show_plainly(blob)}" for blob in request.blobs)
    yield f"\n--- {TASK_MODULE}\n{_show_source(task.task_module)}"
    if task.validator_module:
        named = ", ".join(filter(None, (request.init_entry, request.compare_entry)))
        yield f"--- {VALIDATOR_MODULE} ({show_plainly(named)})"
        yield _show_source(task.validator_module)


def _show_source(source: bytes) -> str:
    return show_plainly(source.decode("utf-8", "backslashreplace"))


def _show_arguments(arguments: bytes) -> str:
    """Return the arguments as JSON, cut when long; they are hostile bytes."""
    try:
        value = render_json_value(decode(arguments))
    except StoiloError as error:
        return f"{len(arguments)} bytes, not shown: {error.message}"
    text = show_plainly(msgspec.json.encode(value).decode())
    cut = text[:_SHOWN_ARGUMENTS]
    return cut if cut == text else f"{cut}… ({len(text)} characters)"


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(BOUNDS.inline_arguments_bytes + 1)
    except OSError as error:
        raise UsageError(
            "STO-U004", f"{path} cannot be read: {error.strerror}"
        ) from error
    if len(data) > BOUNDS.inline_arguments_bytes:
        raise UsageError("STO-U004", f"{path} is too large")
    return data
