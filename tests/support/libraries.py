"""Programs and attacks over described libraries, in the jail and beside plain CPython."""

import ast
import functools
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import to_node
from stoilo.core.levels import Level, load_levels
from stoilo.core.libraries import add_libraries, level_order, load_libraries
from stoilo.core.types import RunLayer, RunLimits, RunOutcome, RunStatus, Verdict
from stoilo.policies.gate import GateRequest, judge
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.report import JailStatus, decode_frame, read_outcome
from stoilo.sandbox.process.supervisor import Jail, zygote_environment

PROGRAMS = Path(__file__).parents[1] / "libraries" / "programs"

PLAIN_CPYTHON = """
import contextlib, importlib, io, json, os, random, sys, types, warnings
import numpy.random
for name in sys.argv[1:]:
    with contextlib.suppress(ImportError):  # `from x import y`: y may be no module
        importlib.import_module(name)
from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import from_node, to_node
from stoilo.sandbox.language.runtime import start_item

def answer(source, entry, kwargs):
    module = sys.modules["stoilo_task"] = types.ModuleType("stoilo_task")
    warnings.simplefilter("ignore")
    start_item(bytes(32), 0, 0)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source, "<task>", "exec", dont_inherit=True), module.__dict__)
        value = module.__dict__[entry](from_node(skeleton.decode(bytes.fromhex(kwargs))))
    return skeleton.encode(to_node(value)).hex()

for line in sys.stdin:
    sys.stdout.flush()
    if os.fork() == 0:
        try:
            json.dump([answer(*json.loads(line)), ""], sys.stdout)
        except BaseException as error:
            json.dump(["", f"{type(error).__name__}: {error}"], sys.stdout)
        print(flush=True)
        os._exit(0)
    _, status = os.wait()
    if status:
        print(json.dumps(["", f"it ended with status {status}"]), flush=True)
"""
"""Runs each line's program in a fork of its own; seeded as the zygote's children are."""


def library_level(*names: str) -> Level:
    """Return the narrowest level for these libraries, with them."""
    libraries = load_libraries(names)
    assert len(libraries) == len(names), f"one of {names} is not described"
    order = max((level_order(one) for one in libraries), default=0)
    return add_libraries(load_levels()[order], libraries)


_jails: dict[tuple[str, ...], Jail] = {}


def library_jail(*names: str) -> Jail:
    """Return a warm jail for tasks over these libraries; one until they are closed."""
    if names not in _jails:
        _jails[names] = Jail(library_level(*names), TASK_JOB)
    return _jails[names]


_plain: dict[tuple[str, ...], subprocess.Popen[str]] = {}


def plain_process(*preload: str) -> subprocess.Popen[str]:
    """Return plain CPython with these modules imported; one until they are closed."""
    if preload not in _plain:
        _plain[preload] = subprocess.Popen(
            [sys.executable, "-s", "-P", "-c", PLAIN_CPYTHON, *preload],
            env=zygote_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    return _plain[preload]


def close_jails() -> None:
    """End every jail of `library_jail`, and every `plain_process`."""
    while _jails:
        _jails.popitem()[1].close()
    while _plain:
        _plain.popitem()[1].communicate(timeout=30)


def needed_libraries(source: str) -> tuple[tuple[str, ...], Verdict]:
    """Return what the gate says the source needs, and its verdict."""
    verdict = judge(GateRequest(source.encode(), entry=""))
    return verdict.libraries, verdict


def run_jailed(
    source: str,
    entry: str,
    kwargs: Any,
    libraries: Sequence[str],
    limits: RunLimits | None = None,
) -> RunOutcome:
    """Run `entry` through gate and jail; a refusal by the gate is an outcome too."""
    verdict = judge(GateRequest(source.encode(), entry=entry))
    if not verdict.admitted:
        first = verdict.findings[0]
        error = f"line {first.line}: {first.message}"
        return RunOutcome(
            RunStatus.REFUSED, error=error, code=first.code, layer=RunLayer.GATE
        )
    level = library_level(*libraries)
    request = TaskRequest(source, entry, skeleton.encode(to_node(kwargs)))
    jail = library_jail(*libraries)
    report = jail.run(request.encode(), limits or level.default_limits())
    if report.status is JailStatus.FINISHED:
        frame = decode_frame(report)
        late = isinstance(frame, dict) and frame.get("late_imports") is True
        assert not late, "a library imports something late: preload it"
    return read_outcome(report)


def run_plainly(
    calls: Iterable[tuple[str, str, Any]], preload: Sequence[str] = ()
) -> list[tuple[bytes, str]]:
    """Return [value, error] of plain CPython for each (source, entry, kwargs)."""
    lines = [
        json.dumps([source, entry, skeleton.encode(to_node(kwargs)).hex()]) + "\n"
        for source, entry, kwargs in calls
    ]
    process = plain_process(*preload)
    assert process.stdin
    assert process.stdout
    answers = []
    for line in lines:
        process.stdin.write(line)
        process.stdin.flush()
        value, error = json.loads(process.stdout.readline())
        answers.append((bytes.fromhex(value), error))
    return answers


def programs_of(library: str) -> list[Any]:
    """Return the programs of ``tests/libraries/programs/<library>`` as parameters.

    Every public function of one ``args`` is a program; the file it stands in is its source.
    """
    return [
        pytest.param(path, node.name, id=f"{path.stem}-{node.name}")
        for path in sorted(PROGRAMS.glob(f"{library}/*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and [one.arg for one in node.args.args] == ["args"]
    ]


def imports_of(sources: Iterable[str]) -> tuple[str, ...]:
    """Return what sources import: for one process to load, not each one's fork."""
    found = set()
    for node in (one for text in sources for one in ast.walk(ast.parse(text))):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module)}
            found |= {f"{node.module}.{one.name}" for one in node.names}
    return tuple(sorted(found))


@functools.cache
def _imports_in(folder: Path) -> tuple[str, ...]:
    return imports_of(path.read_text() for path in folder.glob("*.py"))


@functools.cache
def _plain_answers(
    path: Path, preload: tuple[str, ...]
) -> dict[Any, tuple[bytes, str]]:
    source, preload = path.read_text(), (*preload, *_imports_in(path.parent))
    names = [
        param.values[1]
        for param in programs_of(path.parent.name)
        if param.values[0] == path
    ]
    found = run_plainly([(source, name, {}) for name in names], preload)
    return dict(zip(names, found, strict=True))


def check_program(path: Path, name: str, preload: tuple[str, ...] = ()) -> None:
    """Assert that a program gives plain CPython's very answer, to the last bit.

    The plain run imports `preload` first: what makes a library usable on this machine.
    """
    value, error = _plain_answers(path, preload)[name]
    assert not error, error
    source = path.read_text()
    libraries, verdict = needed_libraries(source)
    assert verdict.admitted, [f"{one.line}: {one.message}" for one in verdict.findings]
    outcome = run_jailed(source, name, {}, libraries)
    assert outcome.status is RunStatus.OK, f"{outcome.code} {outcome.error}"
    assert outcome.value == value


def assert_stopped(source: str, *libraries: str) -> str:
    """Assert that an attack works in plain CPython and not in the jail; return the code.

    An attack is ``def run(args)``: anything true that it returns plainly is the evidence
    that the road is real. In the jail it must end in no value, or in a false one.
    """
    ((value, error),) = run_plainly([(source, "run", {})], preload=libraries)
    assert not error, error
    assert skeleton.decode(value), "the attack does not work in plain CPython either"
    outcome = run_jailed(source, "run", {}, libraries)
    if outcome.status is RunStatus.OK:
        assert not skeleton.decode(outcome.value or b"")
    return outcome.code


FAKE_LIBRARY = """
name = "fake"
distribution = "fake-library"
versions = ">=1.4,<1.5"
level = "pure"
summary = "fake: for tests."
preload = ["fake"]
[modules."fake"]
names = ["work"]
"""
"""The description of what `install_fake` makes."""


def install_fake(
    folder: Path, source: str, version: str = "1.4.2", **files: str
) -> None:
    """Put the package ``fake`` into `folder` as pip would; `files`: submodules' texts."""
    package = folder / "fake"
    package.mkdir()
    for name, text in {"__init__": source, **files}.items():
        (package / f"{name}.py").write_text(text)
    info = folder / "fake_library-1.4.2.dist-info"
    info.mkdir()
    facts = f"Metadata-Version: 2.1\nName: fake-library\nVersion: {version}\n"
    (info / "METADATA").write_text(facts)
    (info / "top_level.txt").write_text("fake\n")
