"""Plain programs against the kernel layer alone: each file says how it must end.

Header lines: ``expect:`` status, layer and what is named; ``preload:`` modules; ``wall:`` s;
``control: none`` when the program makes sense in a jail only, ``control: root`` when an
ordinary user may not do it anyway. Every other program is first run as plain Python and must
print REACHED there (the positive control).
"""

import dataclasses
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from stoilo.core.levels import parse_level
from stoilo.core.limits import RunLimits
from stoilo.sandbox.run import PROBE_JOB, encode_probe, read_probe
from stoilo.sandbox.supervisor import Jail

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the programs name calls by x86-64 numbers"
)
FOLDER = Path(__file__).parent / "programs"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))
PRELOAD = ("ctypes", "mmap", "resource", "signal", "socket", "threading")
LEVELS = Path(__file__).parents[3] / "stoilo" / "policies" / "levels"
LIMITS = RunLimits(
    cpu_s=1, wall_s=5, memory_bytes=256 << 20, result_bytes=4096, output_bytes=8192
)


def read_header(source, name, default=""):
    found = re.search(rf"^# {name}: (.*)$", source, re.MULTILINE)
    return found.group(1) if found else default


@pytest.fixture(scope="module", params=["pure", "numeric"])
def jail(request):
    level = parse_level((LEVELS / f"{request.param}.toml").read_bytes())
    with Jail(level, PROBE_JOB, preload=PRELOAD) as opened:
        yield opened


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_in_the_jail_ends_as_its_header_says(jail, name):
    source = (FOLDER / f"{name}.py").read_text()
    preload = tuple(filter(None, read_header(source, "preload").split(",")))
    wall = float(read_header(source, "wall", "4"))
    limits = dataclasses.replace(LIMITS, wall_s=int(wall) + 1)
    report = jail.run(encode_probe(source, preload), limits, wall)
    outcome = read_probe(report)
    assert "REACHED" not in outcome.output, outcome
    status, layer, named = (read_header(source, "expect") + "  ").split(" ", 2)
    assert (outcome.status, outcome.layer or "") == (status, layer), outcome
    said = outcome.limit or report.syscall or outcome.error
    assert named.strip() in {"", "*"} or said.startswith(named.strip()), outcome


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_outside_the_jail_reaches_its_goal(name, tmp_path):
    source = (FOLDER / f"{name}.py").read_text()
    if read_header(source, "control") == "none":
        pytest.skip("has a meaning in a jail only")
    if read_header(source, "control") == "root" and os.geteuid() != 0:
        pytest.skip("only root may do it outside the jail")
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "REACHED" not in done.stdout and done.returncode == 0:
        pytest.skip("this host forbids it outside the jail as well")
    assert "REACHED" in done.stdout, done.stderr[-500:]
