"""How a task's exception is told: type and text, bounded, free of paths and user names."""

from __future__ import annotations

import re
import sys

import msgspec

from stoilo.core.errors import PolicyRefusal, StoiloError, TrustError
from stoilo.core.run_status import RunLayer, RunStatus

__all__ = [
    "OUT_OF_MEMORY",
    "Failure",
    "describe_exception",
    "is_out_of_memory",
    "scrub_paths",
]

OUT_OF_MEMORY = "STO-S013"

TEXT_CHARS = 2000
TYPE_CHARS = 128
_GUARD_CODE = r"STO-G1[0-9]{2}"
_PATH = r"(?<![\w./:])(?:/(?:[\w.+@~-]+/)+[\w.+@~-]*|[A-Za-z]:\\[^\s'\"]+|~/[^\s'\"]+)"


class Failure(msgspec.Struct, frozen=True):
    """Why a run gave no value, in the terms of design §7.

    Attributes:
        status: refused, user_error or killed.
        layer: who decided.
        code: stable code.
        error_type: name of the exception's class, empty for a refusal.
        error_text: what it said.
    """

    status: RunStatus
    layer: RunLayer
    code: str
    error_type: str
    error_text: str


def scrub_paths(text: str) -> str:
    """Return `text`, as it can travel, with every absolute path replaced by its last part.

    Lone surrogates are spelled out: a frame with one could not be written, and the run would
    seem to have ended by itself.
    """

    def keep_name(match: re.Match[str]) -> str:
        return re.split(r"[/\\]", match[0].rstrip("/"))[-1] or "…"

    sound = text.encode("utf-8", "backslashreplace").decode()
    return re.sub(_PATH, keep_name, sound)


def _type_name(error: BaseException) -> str:
    name = str.__str__(type(error).__name__)[:TYPE_CHARS]
    return name.encode("utf-8", "backslashreplace").decode()[:TYPE_CHARS]


def _text_of(error: BaseException) -> str:
    """Return ``str(error)``, which may be the task's own code, cut and scrubbed."""
    try:
        text = str(error)
    except BaseException as second:  # noqa: BLE001 - the task's __str__ may do anything
        return f"(its text raised {_type_name(second)})"
    return scrub_paths(str.__str__(text)[: 2 * TEXT_CHARS])[:TEXT_CHARS]


def _guard_code(error: PolicyRefusal) -> str:
    """Return the guard's code; a task may have caught, changed and raised the error."""
    code = error.args[0] if error.args else None
    if type(code) is str and re.fullmatch(_GUARD_CODE, code):
        return code
    return "STO-G101"


def _guard_text(error: PolicyRefusal) -> str:
    """Return message and hint, if they are still the guard's exact strings."""
    parts = [part for part in error.args[1:3] if type(part) is str and part]
    return scrub_paths(": ".join(parts))[:TEXT_CHARS]


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether `error` is the interpreter's own or numpy's, by exact type.

    A class of a task may have any name and any base.
    """
    arrays = sys.modules.get("numpy._core._exceptions")
    known = (MemoryError, getattr(arrays, "_ArrayMemoryError", MemoryError))
    return type(error) in known


def describe_exception(error: BaseException) -> Failure:
    """Return how `error`, which reached the top of a task, is reported."""
    if is_out_of_memory(error):
        return Failure(
            RunStatus.KILLED,
            RunLayer.LIMITS,
            OUT_OF_MEMORY,
            "MemoryError",
            "out of memory",
        )
    if isinstance(error, PolicyRefusal):
        return Failure(
            RunStatus.REFUSED,
            RunLayer.LANGUAGE,
            _guard_code(error),
            "",
            _guard_text(error),
        )
    return Failure(
        RunStatus.USER_ERROR,
        RunLayer.LANGUAGE,
        "STO-G200",
        _type_name(error),
        _text_of(error),
    )


def describe_refusal(error: StoiloError) -> Failure:
    """Return how a source or argument that never ran is reported."""
    text = f"{error.message}: {error.hint}" if error.hint else error.message
    return Failure(RunStatus.REFUSED, RunLayer.GATE, error.code, "", text)


def describe_result(error: StoiloError | TrustError) -> Failure:
    """Return how a returned value that cannot be encoded is reported."""
    return Failure(
        RunStatus.USER_ERROR,
        RunLayer.RESULT,
        error.code,
        "",
        scrub_paths(error.message),
    )
