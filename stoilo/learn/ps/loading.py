"""Update functions that came from another process: judged again, and run restricted.

Only in the process of a shard: loading executes the source, under the language layer of
`stoilo.sandbox` (no attribute, import or builtin that a task would not get).
"""

from __future__ import annotations

from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.learn.ps.functions import UpdateFunction, judge_function
from stoilo.policies.levels import load_level
from stoilo.sandbox.language.output import TaskPrinter, TextBuffer
from stoilo.sandbox.process.loader import prepare_runtime
from stoilo.sandbox.process.task_job import EndedError, find_entry, load_source

__all__ = ["load_function"]

_PRINTED = 10_000  # characters; nobody reads them


def load_function(name: str, source: str, entry: str, digest: str) -> UpdateFunction:
    """Return the function that another process registered.

    Raises:
        PolicyRefusal: ``STO-T070``, the gate refuses the source.
        TrustError: ``STO-T073``, it is not the source that was registered, or it fails
            while it is loaded.
    """
    if content_digest(source.encode()) != digest:
        raise TrustError("STO-T073", f"update function {name[:40]!r} has changed")
    level = judge_function(name, source, entry)
    runtime = prepare_runtime(load_level("numeric"))  # values may be arrays
    printer = TaskPrinter(TextBuffer(), _PRINTED)
    try:
        call = find_entry(load_source(runtime, source, printer), entry)
    except EndedError as ended:
        why = ended.failure.error_text[:200]
        raise TrustError("STO-T073", f"{name[:40]!r} does not load: {why}") from None

    def apply(value: object, change: object) -> object:
        return call({"args": [value, change], "kwargs": {}})

    return UpdateFunction(name, apply, digest, level, source, entry)
