"""The systemd units: every option is one that systemd has, and the jail works inside."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.openpython import find_open_python, library_paths

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
MUST = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectControlGroups": "yes",
    "LockPersonality": "yes",
    "RestrictSUIDSGID": "yes",
    "SystemCallArchitectures": "native",
}
JAIL_CALLS = {
    "seccomp",
    "landlock_create_ruleset",
    "landlock_add_rule",
    "landlock_restrict_self",
}
WITH_JAIL = ("stoilo.service", "stoilo-volunteer.service")


def read_unit(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for line in path.read_text().splitlines():
        if line and line[0] not in "#[":
            name, separator, value = line.partition("=")
            assert separator, line
            found[name].append(value)
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit_is_hardened_and_runs_as_its_own_user(path: Path) -> None:
    unit = read_unit(path)
    assert {name: unit[name] for name in MUST} == {n: [v] for n, v in MUST.items()}
    assert unit["User"] == [path.stem]
    assert unit["User"] != ["root"]
    assert "@system-service" in " ".join(unit["SystemCallFilter"])


def test_drop_in_of_a_stock_project_opens_what_the_engine_writes_and_no_more() -> None:
    drop_in = read_unit(FOLDER / "stoilo.service.d" / "stock.conf")
    assert set(drop_in) == {"After", "SupplementaryGroups", "ReadWritePaths"}
    written = {Path(one).name for one in drop_in["ReadWritePaths"][0].split()}
    assert written == {"download", "templates", "stoilo"}


def test_systemd_takes_the_drop_in_of_a_stock_project(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "units")
    unit = tmp_path / "units" / "stoilo.service"
    done = subprocess.run(
        [need_systemd(), "verify", "--man=no", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "stock.conf" not in done.stderr


@pytest.mark.parametrize("name", WITH_JAIL)
def test_unit_leaves_the_jail_what_it_needs(name: str) -> None:
    unit = read_unit(FOLDER / name)
    assert unit["RestrictNamespaces"] == ["no"]
    assert set(" ".join(unit["SystemCallFilter"]).split()) >= JAIL_CALLS
    assert not {"MemoryDenyWriteExecute", "ProtectProc", "PrivateUsers"} & set(unit)


def test_signer_reaches_no_network_and_is_not_the_server() -> None:
    unit = read_unit(FOLDER / "stoilo-signer.service")
    assert unit["PrivateNetwork"] == ["yes"]
    assert unit["RestrictAddressFamilies"] == ["AF_UNIX"]
    assert unit["User"] != read_unit(FOLDER / "stoilo.service")["User"]
    assert unit["RestrictNamespaces"] == ["yes"]


def need_systemd() -> str:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not here")
    return program


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_knows_every_line(path: Path) -> None:
    done = subprocess.run(
        [need_systemd(), "verify", "--man=no", path],
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [
        line
        for line in done.stderr.splitlines()
        if path.name in line and "is not executable" not in line
    ]
    assert complaints == []


@pytest.mark.parametrize(
    ("path", "most"),
    [(one, 1.5 if "signer" in one.name else 3.5) for one in UNITS],
    ids=lambda value: getattr(value, "name", None),
)
def test_systemd_calls_it_hardened(path: Path, most: float) -> None:
    done = subprocess.run(
        [need_systemd(), "security", "--offline=true", path],
        capture_output=True,
        text=True,
        check=False,
    )
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    if level is None:
        pytest.skip("this systemd-analyze does not look at files")
    assert float(level[1]) <= most


def calls_of(words: list[str]) -> set[str]:
    """Return the calls that a filter lets through, sets resolved by systemd itself."""
    found: set[str] = set()
    for word in words:
        if not word.startswith("@"):
            found.add(word)
            continue
        done = subprocess.run(
            [need_systemd(), "syscall-filter", word],
            capture_output=True,
            text=True,
            check=True,
        )
        names = re.findall(r"^ {4}([@a-z0-9_-]+)$", done.stdout, re.MULTILINE)
        found |= calls_of(names)
    return found


PROGRAM = """
import ctypes, errno, os, sys
sys.path[:0] = {paths!r}
import msgspec, pyseccomp
from stoilo.core.errors import StoiloError
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import PROBE_JOB
from stoilo.sandbox.process.run import encode_probe
from stoilo.sandbox.process.supervisor import Jail
level = msgspec.structs.replace(load_level("pure"), preload=())
start = "import sys; sys.path[:0] = {paths!r}\\n"
start += "from stoilo.sandbox.process.zygote import main; main()"
command = lambda: [sys.executable, "-s", "-c", start]
assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0
rules = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.EPERM))
for name in {calls!r}:
    try:
        rules.add_rule(pyseccomp.ALLOW, name)
    except (RuntimeError, OSError, ValueError):
        pass
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
rules.load()
try:
    with Jail(level, PROBE_JOB, command=command) as jail:
        report = jail.run(encode_probe("print(6 * 7)"), level.default_limits())
    print(report.status.value, report.output.decode().strip())
except StoiloError as error:
    print("refused", error.code)
"""


def run_in_unit(without: frozenset[str] = frozenset()) -> str:
    """Return what the jail says behind the unit's filter, as an ordinary user."""
    words = " ".join(read_unit(FOLDER / "stoilo.service")["SystemCallFilter"]).split()
    calls = sorted(calls_of(words) - without)
    python = sys.executable if os.geteuid() else find_open_python()
    if python is None:
        pytest.skip("no interpreter that another user may run")
    source = PROGRAM.format(paths=library_paths(), calls=calls)
    done = subprocess.run(
        [python, "-c", source], capture_output=True, text=True, check=False, cwd="/"
    )
    return done.stdout.strip() or done.stderr[-2000:]


@pytest.mark.slow
def test_jail_works_inside_the_units_filter() -> None:
    assert run_in_unit() == "finished 42"


@pytest.mark.slow
@pytest.mark.parametrize("call", ["seccomp", "landlock_restrict_self"])
def test_without_a_call_of_the_jail_the_unit_would_refuse_to_work(call: str) -> None:
    assert run_in_unit(frozenset({call})).startswith("refused")
