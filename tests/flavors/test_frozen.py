"""Real frozen parts: rebuilt equal, holding what is committed, running tasks in the jail."""

import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stoilo.cli.main import main
from stoilo.core.codec import skeleton
from stoilo.core.frozen_tree import platform_name
from stoilo.core.libraries import add_libraries
from stoilo.core.types import RunStatus
from stoilo.flavors.contents import load_contents, unite_contents
from stoilo.flavors.described import flavor_level, library_contents
from stoilo.flavors.manifest import find_flavor, held_libraries
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail
from tests.support.libraries import programs_of
from tests.support.pyinstaller import look_inside

CASES = Path(__file__).parents[1] / "attack" / "cases"
FOLDERS = {"pure": "benign", "pillow": "benign_numeric"}
FLAVORS = ("pure", "pillow")  # which has all that `numeric` has
PARTS = (*FLAVORS, "verifier")
PROGRAMS = {"verifier": "stoilo-verifier"}
SAMPLE = 12
LOADS = re.compile(r"\b(open|openat|openat2|stat|newfstatat|statx|execve|socket)\(")
LATE = 'def run(kwargs):\n    return "x".encode("cp437").hex()\n'

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def program_of(output, part):
    return str(output / "tree" / PROGRAMS.get(part, "stoilo-runtime"))


def read_sample(part):
    """Return programs of a flavor by name: (source, entry, arguments), from all over."""
    paths = sorted((CASES / FOLDERS[part]).glob("*.py"))
    plain = [path for path in paths if "\n# run = " not in path.read_text()]
    given = {"parts": 3, "n": 3}
    found = {path.stem: (path.read_text(), "run", given) for path in plain}
    found = dict(list(found.items())[:: len(found) // SAMPLE])
    if part != "pure":
        given = [one.values for one in programs_of("PIL")]
        more = {name: (path.read_text(), name, {}) for path, name in given}
        found |= dict(list(more.items())[:: len(more) // SAMPLE])
    return found


def run_frozen(part, command, programs):
    flavor = find_flavor(part)
    rules = add_libraries(load_level(flavor_level(flavor)), held_libraries(flavor))
    with Jail(rules, TASK_JOB, command=lambda: command) as jail:
        return {
            name: run_task(
                jail,
                TaskRequest(source, entry, skeleton.encode(given)),
                rules.default_limits(),
            )
            for name, (source, entry, given) in programs.items()
        }


def contents_of(part):
    """Return what a part's tree must hold."""
    if part == "verifier":
        return load_contents(part)
    flavor = find_flavor(part)
    names = library_contents(flavor_level(flavor), held_libraries(flavor))
    return unite_contents(map(load_contents, names))


@pytest.mark.parametrize("part", PARTS)
def test_two_builders_get_the_same_bytes(part, frozen, frozen_again, capsys):
    with ThreadPoolExecutor(2) as both:  # which takes most of a minute each
        made = list(both.map(lambda build: str(build(part)), (frozen, frozen_again)))
    assert main(["flavor", "compare", *made]) == 0
    assert capsys.readouterr().out.startswith("equal: ")
    folder = "verifier" if part == "verifier" else f"flavor/{part}"
    for path in sorted((frozen(part) / folder).iterdir()):
        again = frozen_again(part) / folder / path.name
        assert path.read_bytes() == again.read_bytes(), path.name


def test_planted_byte_makes_compare_fail_and_names_the_path(frozen, tmp_path, capsys):
    copy = tmp_path / "tree"
    shutil.copytree(frozen("pure") / "tree", copy)
    target = copy / "_internal" / "base_library.zip"
    data = bytearray(target.read_bytes())
    data[len(data) // 2] ^= 1
    target.write_bytes(data)
    assert main(["flavor", "compare", str(copy)]) == 4
    assert "base_library.zip" in capsys.readouterr().err
    assert main(["flavor", "compare", str(frozen("pure")), str(copy)]) == 4
    assert "base_library.zip" in capsys.readouterr().err


@pytest.mark.parametrize("part", PARTS)
def test_tree_holds_the_committed_contents_and_nothing_else(part, frozen):
    contents = contents_of(part)
    inside = look_inside(frozen(part) / "tree", PROGRAMS.get(part, "stoilo-runtime"))
    # the base interpreter may have modules built in: another set on each build of Python
    assert set(inside.modules) <= set(contents.modules)
    missing = set(contents.modules) - set(inside.modules)
    assert {name for name in missing if not name.startswith("_")} <= set(BUILT_IN)
    assert set(inside.libraries) <= set(contents.libraries)
    expected = {*contents.data, "stoilo/executor/verifier/built.json"}
    others = {f for f in inside.files if not f.startswith("licences/")}
    assert others - expected == set()
    assert {o.partition(" ")[0] for o in inside.options} == {
        "X", "hash_seed=0", "pyi-contents-directory",
    }  # fmt: skip


BUILT_IN = {
    *sys.builtin_module_names,
    *("array", "binascii", "cmath", "fcntl", "math", "select", "syslog"),
    *("unicodedata", "zlib", "grp", "pwd", "mmap", "resource"),
}  # what builds of CPython have inside: Debian's more than others


@pytest.mark.parametrize("part", FLAVORS)
def test_tree_has_no_links_and_no_foreign_metadata(part, frozen):
    files = sorted((frozen(part) / "tree").rglob("*"))
    assert not [path for path in files if path.is_symlink()]
    names = {path.name for path in files}
    assert not names & {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}


@pytest.mark.parametrize("part", FLAVORS)
def test_benign_programs_run_in_the_frozen_runtime(part, frozen):
    outcomes = run_frozen(part, [program_of(frozen(part), part)], read_sample(part))
    assert len(outcomes) >= 2
    failed = {n: o.error for n, o in outcomes.items() if o.status is not RunStatus.OK}
    assert failed == {}


def test_runtime_takes_no_argument(frozen):
    done = subprocess.run(
        [program_of(frozen("pure"), "pure"), "-c", "print(1)"],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, b"")


def trace_frozen(part, command, sources, trace):
    """Run programs in a traced jail; return what each child called once sealed."""
    wrapped = [shutil.which("strace"), "-Df", "-o", str(trace), *command]
    outcomes = run_frozen(part, wrapped, sources)
    sealed = {}
    for line in trace.read_text(errors="replace").splitlines():
        pid, _, call = line.partition(" ")
        if "SECCOMP_FILTER_FLAG_NEW_LISTENER" in call:
            sealed[pid] = []
        elif pid in sealed:
            sealed[pid].append(call)
    return outcomes, list(sealed.values())


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("part", FLAVORS)
def test_no_file_is_opened_inside_the_jail(part, frozen, tmp_path):
    command = [program_of(frozen(part), part)]
    sources = dict(list(read_sample(part).items())[::3])
    outcomes, calls = trace_frozen(part, command, sources, tmp_path / "trace")
    assert {o.status for o in outcomes.values()} == {RunStatus.OK}
    assert len(calls) == len(sources)
    assert [call for child in calls for call in child if LOADS.search(call)] == []


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_trace_shows_what_the_zygote_loads_before_jails_close(frozen, tmp_path):
    """The control; a codec that is in no list is not even looked for in files."""
    command = [program_of(frozen("pure"), "pure")]
    trace = tmp_path / "trace"
    late = {"late": (LATE, "run", {})}
    outcomes, calls = trace_frozen("pure", command, late, trace)
    assert "openat(" in trace.read_text(errors="replace")
    assert outcomes["late"].status is RunStatus.USER_ERROR
    assert [call for call in calls[0] if LOADS.search(call)] == []


def test_bill_of_materials_names_every_wheel_and_host_library(frozen):
    folder = frozen("pillow") / "flavor" / "pillow"
    bom = json.loads((folder / f"{platform_name()}.sbom.json").read_text())
    names = {one["name"] for one in bom["components"]}
    assert {"numpy", "pillow", "msgspec", "restrictedpython", "python"} <= names
    assert "libpython3.11.so.1.0" in names
    assert "pyinstaller" not in names
    assert all(
        len(one["hashes"][0]["content"]) == 64
        for one in bom["components"]
        if one["name"] != "python"
    )
