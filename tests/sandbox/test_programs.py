from __future__ import annotations

import contextlib
import io
import sys
import types
import warnings
from pathlib import Path

import pytest

from stoilo.core import skeleton
from stoilo.core.values import to_node
from stoilo.sandbox.capture_print import TextBuffer
from stoilo.sandbox.jobs.task import run_call
from stoilo.sandbox.loader import LanguageRuntime
from stoilo.sandbox.rules import TASK_MODULE

PROGRAMS = sorted((Path(__file__).parent / "programs" / "benign").glob("*.py"))
ARGUMENTS = {"parts": 3}


def run_plainly(source: str) -> tuple[bytes, str]:
    """What CPython answers, without any layer."""
    module = types.ModuleType(TASK_MODULE)
    sys.modules[TASK_MODULE] = module
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            code = compile(source, "<task>", "exec", dont_inherit=True)
            exec(code, module.__dict__)  # noqa: S102 - the oracle; our own programs
            value = module.run(dict(ARGUMENTS))
    finally:
        del sys.modules[TASK_MODULE]
    return skeleton.encode(to_node(value)), printed.getvalue()


def run_restricted(
    runtime: LanguageRuntime, source: str
) -> tuple[dict[str, object], str]:
    output = TextBuffer()
    request = {
        "source": source,
        "entry": "run",
        "arguments": skeleton.encode(ARGUMENTS),
        "blobs": [],
        "seed": "00" * 32,
        "now": 1_700_000_000,
        "items": 0,
    }
    frame = run_call(runtime, skeleton.encode(request), output)
    return frame, output.text


def test_there_are_enough_programs() -> None:
    assert len(PROGRAMS) >= 40


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_research_program_gives_what_cpython_gives(
    runtimes: dict[str, LanguageRuntime], path: Path
) -> None:
    source = path.read_text(encoding="utf-8")
    level = "numeric" if "numpy" in source else "pure"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, printed = run_plainly(source)
        frame, output = run_restricted(runtimes[level], source)
    assert frame["status"] == "ok", frame
    assert frame["value"] == expected
    assert output == printed
