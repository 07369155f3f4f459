"""The process in which a member of a cell computes: one for each time that a group forms.

    python -P -m stoilo.learn.cells.worker FD INPUTS RANK HOST…

FD is one end of a socket pair to the member (`stoilo.learn.cells.member`); when the other
end is closed, however that came, the process ends at once, whatever it computes. INPUTS is
the folder of staged inputs. The researcher's class and loss come as source: the gate judges
it and the language layer runs it, as in a task. The kernel layer does not: this is a
machine of the project, with a network. Layout and kernels are our own code.
"""

from __future__ import annotations

import mmap
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, cast

import numpy as np

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import Ndarray, from_node
from stoilo.core.digests import content_digest
from stoilo.core.errors import PolicyRefusal, StoiloError, TrustError
from stoilo.core.libraries import use_types
from stoilo.core.types import Severity
from stoilo.learn.cells import protocol as c
from stoilo.learn.kernels.encoding import arrive
from stoilo.learn.store import protocol as p
from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.levels import load_level
from stoilo.sandbox.language.runtime import TaskPrinter, prepare_runtime, start_item
from stoilo.sandbox.language.transformer import compile_source
from stoilo.sandbox.process.binder import TaskReferences
from stoilo.sandbox.process.task_job import (
    EndedError,
    call_task,
    captured_output,
    encode_value,
    find_entry,
    load_source,
)

_LEVEL = "tensor"
_PRINTED = 10_000  # characters; nobody reads them
_OF_GLOO = "gloo"  # in each text that its links raise


class Worker:
    """One member's share of what its cell does.

    Args:
        inputs: folder of staged inputs, by digest; not believed.
        rank: of this member.
        hosts: of all members, by rank.
    """

    def __init__(self, inputs: Path, rank: int, hosts: Sequence[str]) -> None:
        self._inputs, self._rank, self._hosts = inputs, rank, list(hosts)
        self._door: socket.socket | None = None
        self._printer = TaskPrinter(StringIO(), _PRINTED)

    def open(self, asked: c.Open) -> c.Done:
        """Load torch and the layout: before libraries are sealed for the researcher's code."""
        from stoilo.learn.cells.links import open_door  # noqa: PLC0415 - torch, 1 s

        self._layout = c.read_layout(asked.layout, asked.options)
        self._limit_s = asked.limit_s
        if self._rank == 0:
            self._door = open_door(self._hosts[0])
        port = 0 if self._door is None else self._door.getsockname()[1]
        return c.Done(port=port, versions=c.read_versions())

    def join(self, asked: c.Join) -> c.Done:
        """Form the links, then let researchers' code in."""
        from stoilo.learn.cells.links import form_links  # noqa: PLC0415 - torch, 1 s

        place = self._rank, self._hosts, asked.port, self._door
        links = form_links(*place, self._limit_s)
        self._links = replace(links, folder=self._inputs.parent / "kept")
        level = load_level(_LEVEL)
        use_types(level.travelling_types)
        self._runtime = prepare_runtime(level)
        return c.Done()

    def execute(self, asked: c.Execute) -> c.Done | c.Failed:
        """Execute an order with the others.

        Raises:
            StoiloError: source, inputs or layout are refused.
        """
        began = time.monotonic()
        try:
            with captured_output(self._printer):
                start_item(bytes.fromhex(asked.seed), 0, asked.now)
                make, call = self._load(asked)
                value = call_task(lambda: self._share(asked.kernel, make(call)))
                found = b"" if value is None else encode_value(value)
        except EndedError as ended:
            failure, cause = ended.failure, ended.__context__
            # Of the layout; what guards refuse is the researcher's, as in a task.
            if isinstance(cause, StoiloError) and not isinstance(cause, PolicyRefusal):
                raise cause from None
            is_link = isinstance(cause, RuntimeError) and _OF_GLOO in str(cause)
            words = failure.code, failure.error_type, failure.error_text
            return c.Failed(*words, is_link)
        spans = list(getattr(self._layout, "spans", ()))
        return c.Done(found, time.monotonic() - began, spans=spans)

    def _load(self, asked: c.Execute) -> tuple[Callable[..., Any], object]:
        """Return the function that gives a kernel's arguments, and what it takes."""
        source, kept = str(self._read(asked.source), "utf-8"), self._runtime.kept
        if source not in kept:
            _check_source(source, asked.entry)
            kept[source] = compile_source(source, self._runtime.level)
        # Anew for each order: what its globals hold must not depend on orders before.
        module = load_source(self._runtime, source, self._printer)
        blobs: Any = [self._read(one) for one in asked.blobs]
        references = _Inputs(module, self._runtime, blobs)
        call = from_node(skeleton.decode(asked.arguments), references)
        return find_entry(module, asked.entry), call

    def _share(self, kernel: str, kwargs: dict[str, Any]) -> dict[str, Any] | None:
        read: Callable[..., dict[str, Any]] = arrive  # untyped: it travels as source
        ready = read(kwargs)  # for layouts, parameters came whole
        ready.pop("downlink", None)
        return self._layout.execute(kernel, ready, self._links)

    def _read(self, digest: str) -> memoryview:
        """Return a file's bytes where they lie; who writes into them has his own copy."""
        path = self._inputs / digest
        if not digest.isalnum() or not path.is_file():
            raise TrustError("STO-T011", f"rank {self._rank} has not all inputs")
        with path.open("rb") as file:
            is_empty = not path.stat().st_size
            mapped = (
                b""
                if is_empty
                else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            )
        data = memoryview(mapped)
        if content_digest(data) != digest:
            path.unlink()  # the next group has it staged again
            raise TrustError("STO-T011", f"rank {self._rank}: an input has changed")
        return data


class _Inputs(TaskReferences):
    """What an order's arguments name; tables of arrays stay in their files.

    Such an array is like a copy: it may be written, nobody else sees it, and guards do not
    give what it stands on. Parameters of which a layout takes a slice are never held whole.
    """

    def _read_blob(self, index: int) -> object:
        is_there = not self._inside_blob and index in range(len(self._blobs))
        node = skeleton.decode(self._blobs[index]) if is_there else None
        if type(node) is dict and all(type(one) is Ndarray for one in node.values()):
            return {name: _look_at(one) for name, one in node.items()}
        return super()._read_blob(index)


def _look_at(node: Ndarray) -> object:
    kind = np.dtype(node.dtype).newbyteorder("<")
    flat = np.frombuffer(node.data, kind)
    return flat.astype(kind.newbyteorder("="), copy=False).reshape(node.shape)


def _check_source(source: str, entry: str) -> None:
    verdict = judge(GateRequest(source.encode(), entry=entry, level=_LEVEL))
    if not verdict.admitted:
        errors = [f for f in verdict.findings if f.severity is Severity.ERROR]
        code, why = (errors[0].code, errors[0].message) if errors else ("STO-P002", "")
        raise PolicyRefusal(code, f"the cell's members refuse the source: {why}")


def serve(connection: socket.socket, worker: Worker) -> None:
    """Answer the member, in order, until it goes away or something fails.

    After a failure the process ends: its links close, which the other members notice.
    """
    inbox = queue.SimpleQueue[c.Work]()
    threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()
    while True:
        message = inbox.get()
        try:
            match message:
                case c.Open():
                    answer: Any = worker.open(message)
                case c.Join():
                    answer = worker.join(message)
                case c.Execute():
                    answer = worker.execute(message)
        except StoiloError as error:
            answer = p.Refused(error.family, error.code, error.message)
        except RuntimeError as error:  # torch's, of links that cannot be formed
            text = str(error)[:300]
            answer = c.Failed("STO-T037", type(error).__name__, text, is_link=True)
        p.send_frame(connection, answer)
        if isinstance(answer, p.Refused | c.Failed):
            return


def _listen(connection: socket.socket, inbox: queue.SimpleQueue[c.Work]) -> None:
    # Of its own: the main thread may be in a call of gloo's when nobody wants it any more.
    try:
        while message := p.receive(connection, c.Open | c.Join | c.Execute):
            inbox.put(cast("c.Work", message))
    except (OSError, StoiloError):
        os._exit(1)
    os._exit(0)


def main(arguments: Sequence[str], make: type[Worker] = Worker) -> int:
    """Serve what the arguments name; return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer's process
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold the parameters
    descriptor, inputs, rank, *hosts = arguments
    with socket.socket(fileno=int(descriptor)) as connection:
        try:
            serve(connection, make(Path(inputs), int(rank), hosts))
        except (OSError, TrustError):  # the member is gone
            return 1
    return 0


if __name__ == "__main__":
    # Not by way of the interpreter's end: libraries' threads may wait for peers there.
    os._exit(main(sys.argv[1:]))
