"""The process of one shard: it alone has the file open, and may be killed at any moment.

    python -m stoilo.learn.store.process FD

FD is one end of a socket pair: nobody else can connect, and the process ends when the other
end is closed, however the trainer's process ended. One request after the other is answered.
Update functions that travelled are judged by the gate again and run restricted, as tasks
are (`stoilo.sandbox`, the language layer alone: they are the project's own).
"""

from __future__ import annotations

import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import cast

from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, TrustError, UsageError
from stoilo.learn.store import protocol as p
from stoilo.learn.store.functions import UpdateFunction, judge_function
from stoilo.learn.store.shards import LocalShard, Shard, Updater
from stoilo.learn.store.values import encode
from stoilo.policies.levels import load_level
from stoilo.sandbox.language.runtime import TaskPrinter, prepare_runtime
from stoilo.sandbox.process.task_job import EndedError, find_entry, load_source

_PRINTED = 10_000  # characters; nobody reads them
MakeShard = Callable[[p.OpenShard], Shard]


def load_function(name: str, source: str, entry: str, digest: str) -> UpdateFunction:
    """Return the function that another process registered; its source is executed.

    Raises:
        PolicyRefusal: ``STO-T070``, the gate refuses the source.
        UsageError: ``STO-T012``, it is not the source that was registered, or it fails
            while it is loaded.
    """
    if content_digest(source.encode()) != digest:
        raise UsageError("STO-T012", f"update function {name[:40]!r} has changed")
    level = judge_function(name, source, entry)
    runtime = prepare_runtime(load_level("numeric"))  # values may be arrays
    printer = TaskPrinter(StringIO(), _PRINTED)
    try:
        call = find_entry(load_source(runtime, source, printer), entry)
    except EndedError as ended:
        why = ended.failure.error_text[:200]
        raise UsageError("STO-T012", f"{name[:40]!r} does not load: {why}") from None

    def apply(value: object, change: object) -> object:
        return call({"args": [value, change], "kwargs": {}})

    return UpdateFunction(name, apply, digest, level, source, entry)


def load_functions(
    sources: Iterable[p.FunctionSource | p.ShardOptimizer],
) -> list[Updater]:
    """Return functions that travelled; see `load_function`; an optimiser is as it is."""
    return [
        load_function(f.name, f.source, f.entry, f.digest)
        if isinstance(f, p.FunctionSource)
        else f
        for f in sources
    ]


def open_shard(request: p.OpenShard) -> Shard:
    """Return the shard that a request names; raises what loading and opening do."""
    return LocalShard(Path(request.path), load_functions(request.functions))


def serve(connection: socket.socket, make: MakeShard = open_shard) -> None:
    """Answer commands until the other side closes."""
    held: Shard | None = None
    try:
        while (request := p.receive_request(connection)) is not None:
            response: p.Response = p.Answer(encode(None))
            try:
                match held, request:
                    case None, p.OpenShard():
                        held = make(request)
                    case None, _:
                        raise TrustError("STO-T038", "a shard is opened first")
                    case shard, _:
                        response = p.Answer(encode(_ask(shard, request)))
                p.send_frame(connection, response)
            except StoiloError as error:  # of an answer too large: before it was sent
                refused = p.Refused(error.family, error.code, error.message)
                p.send_frame(connection, refused)
    finally:
        if held is not None:
            held.close()


def _ask(held: Shard, request: p.Request) -> object:
    """Return the answer of a shard; of values no more than a frame holds."""
    command: p.Command[object] = request
    answer = held.ask(command)
    if not isinstance(request, p.ReadCells | p.ReadTagged):
        return answer
    found, size = dict[str, object](), 0
    for key, one in cast("dict[str, object]", answer).items():
        size += len(encode(one))
        if found and size > p.BATCH_BYTES:
            break
        found[key] = one
    return found


def main(arguments: Sequence[str]) -> int:
    """Serve the descriptor that the first argument names; return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer's process
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold the parameters
    with socket.socket(fileno=int(arguments[0])) as connection:
        try:
            serve(connection)
        except (OSError, TrustError):  # the other side is gone, or talks nonsense
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
