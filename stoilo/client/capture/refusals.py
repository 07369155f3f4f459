"""What cannot travel or changes on the way, and how we say so: name, reason, advice."""

from __future__ import annotations

import ast
import asyncio
import concurrent.futures
import io
import logging
import queue
import re
import socket
import subprocess
import threading
import types
from typing import NoReturn

from stoilo.core.errors import UsageError


def refuse(code: str, message: str, hint: str) -> NoReturn:
    """Raise the usage error of `code`."""
    raise UsageError(code, message, hint=hint)


_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition)

_REASONS: tuple[tuple[tuple[type, ...], str, str], ...] = (
    (
        (io.IOBase,),
        "an open file, and volunteers have none of your files",
        "read it here and pass the content",
    ),
    (
        (*_LOCKS, threading.Event, threading.Semaphore, threading.Thread),
        "a lock or thread, which belongs to one process",
        "a task runs alone; drop it or create what you need inside the function",
    ),
    (
        (types.GeneratorType, types.AsyncGeneratorType, types.CoroutineType),
        "a running generator or coroutine, whose position cannot be written down",
        "pass list(...) of it, or create it inside the function",
    ),
    (
        (socket.socket,),
        "a socket, and tasks have no network",
        "fetch the data here and pass it",
    ),
    (
        (subprocess.Popen,),
        "a process, and tasks cannot start any",
        "run it here and pass what it printed",
    ),
    (
        (queue.Queue, asyncio.Future, concurrent.futures.Future),
        "a queue or future, which belongs to this process",
        "wait for the value here and pass that",
    ),
    (
        (concurrent.futures.Executor, asyncio.AbstractEventLoop),
        "an executor or event loop, which belongs to this process",
        "create tasks here instead of inside a task",
    ),
    ((logging.Logger,), "a logger", "use print: a task's output comes back with it"),
    (
        (types.FrameType, types.TracebackType, types.CodeType),
        "a part of the running interpreter",
        "pass the values you need from it",
    ),
    ((memoryview,), "a view of this process's memory", "pass bytes(...) of it"),
    ((bytearray,), "a bytearray", "pass bytes(...) of it"),
)


def reason_against(value: object) -> tuple[str, str]:
    """Return why `value` cannot travel, and what to do."""
    for kinds, why, advice in _REASONS:
        if isinstance(value, kinds):
            return why, advice
    kind = type(value)
    if hasattr(kind, "__next__"):
        return "an iterator", "pass list(...) of it"
    if kind.__module__.split(".")[0] == "stoilo":
        return (
            f"stoilo's own {kind.__name__}, which talks to the server",
            "submit follow-up tasks from here, not from inside a task",
        )
    why = f"an object of {kind.__module__}.{kind.__qualname__}"
    advice = "pass the plain values it holds and rebuild it inside the function"
    return f"{why}, which has no form that travels", advice


def refuse_value(value: object, where: str) -> NoReturn:
    """Raise ``STO-C010``: the value that `where` names does not travel."""
    why, advice = reason_against(value)
    refuse("STO-C010", f"{where} cannot travel: it is {why}", advice)


_STOPWATCH = r"(?:time\.)?(?:monotonic|perf_counter|process_time|thread_time)(?:_ns)?"
_CLOCKS = {
    _STOPWATCH: "ticks 1 µs a reading",
    r"(?:time\.)?time(?:_ns)?|(?:\w+\.)?(?:datetime|date)\.(?:now|utcnow|today)": (
        "is the time of the task's admission, throughout"
    ),
}


def virtual_clocks(module: str) -> list[str]:
    """Return what a task module's clocks say to volunteers, as ``time.time() is …``."""
    nodes = list(ast.walk(ast.parse(module)))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    real = {one.asname: one.name for node in imports for one in node.names}
    calls = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
    return [
        f"{name}() {words}"
        for name in dict.fromkeys(calls)
        for pattern, words in _CLOCKS.items()
        if re.fullmatch(pattern, re.sub(r"^\w+", lambda m: real.get(m[0], m[0]), name))
    ]
