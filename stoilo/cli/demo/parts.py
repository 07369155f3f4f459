"""The demo's outside parts, replaceable so that tests can break each claim.

The command line offers no way to replace them: a sabotaged demo is a test's program.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

from stoilo.cli.demo.auditor import WatchedLog, begin_witness, hide_witnesses, watch_log
from stoilo.core.errors import InternalError
from stoilo.testing.deployment import Deployment

NAME = "demo_research"
GATE_PROGRAMS = ("dunder_walk", "hidden_text", "read_files")
JAIL_PROGRAM = "call_home"


def read_program(name: str) -> str:
    """Return the text of a hostile program: of three for the gate, one for the jail."""
    folder = resources.files("stoilo.cli.demo") / "hostile"
    return (folder / f"{name}.txt").read_text(encoding="utf-8")


def load_research() -> ModuleType:
    """Return `research.py` as the top-level module ``demo_research``."""
    path = Path(__file__).with_name("research.py")
    spec = importlib.util.spec_from_file_location(NAME, path)
    if spec is None or spec.loader is None:
        raise InternalError("STO-U004", "the demo's research file is missing")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    return module


COMMAND_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class DemoParts:
    """What the scenario calls out to."""

    research: ModuleType  # the researcher's module, see `stoilo.cli.demo.parts`
    # Makes the deployment from its data directory and number of volunteers
    deploy: Callable[[Path, int], Deployment]
    # Runs a witness of a deployment that is not yet started
    begin_witness: Callable[[Path, Deployment], AbstractContextManager[None]]
    # Takes the cosignatures out of a log proof
    hide_witnesses: Callable[[bytes], bytes]
    read_program: Callable[[str], str]  # returns the text of a hostile program by name
    # Starts the third, falsifying volunteer of a deployment
    start_cheat: Callable[[Deployment, Path], subprocess.Popen[bytes]]
    # Returns the log proof of a task id, from a data directory
    prove_task: Callable[[Path, str], bytes]
    # Returns the exit code of `stoilo audit verify` on a directory
    verify_log: Callable[[Path], int]
    # Follows the log of a directory and HTTP address as an outsider
    watch_log: Callable[[Path, str], WatchedLog]
    # Runs a program through the kernel layer alone
    probe_program: Callable[[str], dict[str, Any]]


def _stoilo(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "stoilo", *arguments]
    return subprocess.run(
        command, check=False, capture_output=True, timeout=COMMAND_TIMEOUT_S
    )


def start_cheat(deployment: Deployment, state: Path) -> subprocess.Popen[bytes]:
    """Attach a volunteer that reports false values; it survives server restarts."""
    return deployment.attach(
        "cheat@localhost.localdomain", state, program="stoilo.testing.cheat"
    )


def prove_task(data: Path, task_id: str) -> bytes:
    """Return what `stoilo audit prove` prints for one task."""
    return _stoilo("audit", "prove", task_id, "--data", str(data)).stdout


def verify_log(data: Path) -> int:
    """Return the exit code of `stoilo audit verify` beside the running server."""
    return _stoilo("audit", "verify", str(data)).returncode


def probe_program(text: str) -> dict[str, Any]:
    """Return the outcome of `stoilo sandbox probe` on a program."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.py"
        file.write_text(text, encoding="utf-8")
        done = _stoilo("sandbox", "probe", str(file), "--preload", "socket", "--json")
    outcome = json.loads(done.stdout.splitlines()[-1])
    return {**outcome, "exit": done.returncode}


def real_parts() -> DemoParts:
    """Return what `stoilo demo` runs with."""
    return DemoParts(
        research=load_research(),
        deploy=Deployment,
        begin_witness=begin_witness,
        hide_witnesses=hide_witnesses,
        read_program=read_program,
        start_cheat=start_cheat,
        prove_task=prove_task,
        verify_log=verify_log,
        watch_log=watch_log,
        probe_program=probe_program,
    )
