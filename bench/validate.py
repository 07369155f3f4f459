"""Validating one quorum pair against a Python process per comparison (the thesis's way).

Ours reads both result files, decodes them strictly and asks the comparator. The default
comparator runs no code of anybody's and stays in the server; a researcher's own runs in
the jail, in a fresh fork, and only its row carries that cost. The peer is one process that
reads the same two values as JSON and compares them. Only the default comparator's ratio
has a target; like for like is the jailed row's, where both start something per pair.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.rows import Row, paired_seconds
from stoilo.core.codec.skeleton import encode
from stoilo.core.types import RunStatus
from stoilo.executor.verifier.workunit import (
    FORMAT,
    Disposition,
    ResultHeader,
    render_result,
)
from stoilo.server.validation.answers import parse_answer
from stoilo.server.validation.validators import (
    Call,
    ValidatorJails,
    ValidatorProgram,
    Validators,
)

VALUE = {"mean": 0.25, "parts": [number / 7 for number in range(100)]}
PEER = """import json, sys
left, right = (json.load(open(name)) for name in sys.argv[1:])
sys.exit(left != right)
"""
OWN = b"""def compare(left, right):
    return abs(left["mean"] - right["mean"]) < 1e-9
"""
REACH = 20


@dataclass(frozen=True)
class Pair:
    """Two results of honest copies, as files of both kinds."""

    files: tuple[Path, Path]
    lists: tuple[Path, Path]


def write_pair(folder: Path) -> Pair:
    """Write the files."""
    header = ResultHeader(
        format=FORMAT,
        result="r_0",
        workunit="r",
        disposition=Disposition.RAN,
        admission="0" * 64,
        attempt=1,
        status=RunStatus.OK,
    )
    plain = dict.fromkeys(("error_type", "error_text", "code", "layer"), "")
    frame = encode({"status": "ok", "value": encode(VALUE), **plain})
    files = (folder / "left", folder / "right")
    lists = (folder / "left.json", folder / "right.json")
    for file, other in zip(files, lists, strict=True):
        file.write_bytes(render_result(header, frame, b""))
        other.write_text(json.dumps(VALUE))
    return Pair(files, lists)


def validate(validators: Validators, program: ValidatorProgram, pair: Pair) -> None:
    """Decide one quorum."""
    left, right = (
        parse_answer(file.read_bytes(), 0).items[0].value for file in pair.files
    )
    assert left is not None
    assert right is not None
    assert validators.decide(Call(program, "compare", (left, right)))


def start_process(pair: Pair) -> None:
    """Decide the same in a process of its own."""
    subprocess.run([sys.executable, "-c", PEER, *pair.lists], check=True)


def measure(runs: int = 25) -> list[Row]:
    """Return the row of each comparator."""
    jails = ValidatorJails()
    validators = Validators(jails.of)
    own = ValidatorProgram(OWN, "", "compare", "pure")
    default = ValidatorProgram(b"", "", "", "pure")
    try:
        with tempfile.TemporaryDirectory() as folder:
            pair = write_pair(Path(folder))

            def measured(program: ValidatorProgram) -> tuple[float, float]:
                return paired_seconds(
                    lambda: validate(validators, program, pair),
                    lambda: start_process(pair),
                    runs,
                )

            return [
                _row("validate one quorum pair", measured(default), REACH),
                _row("the same, researcher's comparator, jailed", measured(own)),
            ]
    finally:
        jails.close()


def _row(name: str, pair: tuple[float, float], reach: int | None = None) -> Row:
    ours, theirs = (1 / seconds for seconds in pair)
    return Row(
        name=name,
        ours=ours,
        unit="1/s",
        peer_name="a Python process per comparison",
        peer=theirs,
        ratio=ours / theirs,
        ratio_of="times as many",
        target=f">= {reach}x" if reach else "",
        met=ours / theirs >= reach if reach else None,
    )
