"""The probe job: a plain program as ``__main__``, the language layer off.

It exists so that the kernel layer can be tried "as if the language layer were broken"; no
other part starts it.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import sys
import time
import types
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, cast

from stoilo.core.codec import skeleton
from stoilo.core.levels import Level
from stoilo.sandbox.process.channel import Output
from stoilo.sandbox.process.child import OUT_OF_MEMORY_CODE, is_out_of_memory

ALWAYS = ("sys", "os", "time", "errno", "__future__")
"""Modules that every probe may import, besides those named."""
_TEXT_CHARS = 2000
_PRELOADED = (errno, os, sys, time, unicodedata)
"""`unicodedata` for the parser, which asks for it at a name of another alphabet."""


def prepare(level: Level) -> None:
    """Replace the standard streams by unbuffered ones, which survive a kill.

    What a probe may import was named by its caller.
    """
    del level
    raw = cast("io.BufferedIOBase", io.FileIO(1, "w", closefd=False))
    sys.stdout = sys.stderr = io.TextIOWrapper(
        raw, "utf-8", "backslashreplace", newline="\n", write_through=True
    )
    sys.stdin = io.StringIO()


class NotPreloadedError(ImportError):
    """The program imports a module that was not named before the jail closed."""


def _make_import(allowed: frozenset[str]) -> Callable[..., types.ModuleType]:
    def import_preloaded(
        name: str,
        globals_: Mapping[str, object] | None = None,
        locals_: Mapping[str, object] | None = None,
        fromlist: tuple[str, ...] = (),
        level: int = 0,
    ) -> types.ModuleType:
        if level == 0 and name.partition(".")[0] not in allowed:
            raise NotPreloadedError(f"module {name!r} was not preloaded", name=name)
        return __import__(name, globals_, locals_, fromlist, level)

    return import_preloaded


def _make_main(allowed: frozenset[str]) -> types.ModuleType:
    module = types.ModuleType("__main__")
    namespace = dict(vars(builtins))
    namespace["__import__"] = _make_import(allowed)
    module.__dict__["__builtins__"] = namespace
    sys.modules["__main__"] = module
    return module


def _describe_failure(error: BaseException) -> dict[str, Any]:
    code = "STO-G200"
    if isinstance(error, SystemExit):
        code = "STO-G200"
    elif is_out_of_memory(error):
        code = OUT_OF_MEMORY_CODE
    elif isinstance(error, ImportError):
        code = "STO-S025"
    text = str(error)[:_TEXT_CHARS].encode("utf-8", "replace").decode()
    return {
        "status": "failed",
        "code": code,
        "error_type": type(error).__name__,
        "error_text": text,
    }


def run(request: bytes, output: Output) -> bytes:
    """Run the program of `request` {"source": str, "preload": list} to its end."""
    order = cast("dict[str, Any]", skeleton.decode(request))
    names = frozenset(name.partition(".")[0] for name in (*ALWAYS, *order["preload"]))
    del output  # a program prints to its standard streams
    try:
        code = compile(order["source"], "<program>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        return skeleton.encode(_describe_failure(error) | {"code": "STO-P023"})
    try:
        exec(code, _make_main(names).__dict__)  # noqa: S102 - inside the jail
    except SystemExit as error:
        if error.code not in {None, 0}:
            return skeleton.encode(_describe_failure(error))
    except BaseException as error:  # noqa: BLE001 - the program's edge
        return skeleton.encode(_describe_failure(error))
    return skeleton.encode({"status": "ok"})
