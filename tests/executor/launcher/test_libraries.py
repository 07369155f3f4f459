"""BOINC points LD_LIBRARY_PATH to where a server writes: nothing is loaded from there.

The libraries that are planted make a file when they are loaded. They lie in the project's
directory, in the slot and in the data directory, under the names that a frozen Python needs.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
NAMES = ["libc.so.6", "libz.so.1", "libpython3.11.so.1.0", "libm.so.6", "libdl.so.2"]
# What BOINC's client sets (boinc.md, 4.1), relative to the slot.
SEARCHED = "../../projects/p:.:../.."
STRACE = shutil.which("strace")


@pytest.fixture(scope="session")
def plant(workshop, compile_program):
    """Return a planted library, and the file that it makes."""
    marker = workshop / "loaded"
    options = ["-shared", "-fPIC", "-Wl,-soname,libz.so.1", f'-DMARKER="{marker}"']
    library = compile_program(workshop / "plant.so", *options, PROGRAMS / "plant.c")
    return library, marker


@pytest.fixture
def hostile(slot, plant):
    """Plant the library under every name and everywhere; return the environment."""
    library, marker = plant
    marker.unlink(missing_ok=True)
    for folder in (slot.project, slot.path, slot.data):
        for name in NAMES:
            shutil.copy(library, folder / name)
        for name in ("gconv-modules", "glibc-hwcaps", "tls", "x86_64"):
            (folder / name).mkdir()
            shutil.copy(library, folder / name / "libc.so.6")
    return {
        "LD_LIBRARY_PATH": SEARCHED,
        "LD_PRELOAD": "./libz.so.1",
        "LD_AUDIT": "./libz.so.1",
        "GCONV_PATH": ".",
        "LOCPATH": ".",
        "NLSPATH": "./%N",
        "LC_ALL": "de_DE.UTF-8",
        "GLIBC_TUNABLES": "glibc.malloc.check=3:glibc.rtld.optional_static_tls=9",
        "MALLOC_CHECK_": "3",
        "PYTHONHOME": ".",
    }


def test_planted_libraries_are_not_loaded(slot, hostile, plant):
    assert slot.starts(env=hostile)  # unpacking
    assert slot.starts(env=hostile)  # unpacked
    assert not plant[1].exists()


def test_planted_libraries_are_not_loaded_on_a_refusal(slot, hostile, plant):
    (slot.project / "stoilo-verifier.tar").write_bytes(b"x" * 9999)
    assert slot.refusal(env=hostile) == (4, "STO-F052")
    assert not plant[1].exists()


@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "LD_PRELOAD"])
def test_control_a_dynamic_program_loads_one(slot, plant, compile_program, variable):
    """The same plant, the same variable: what BOINC starts must not be dynamic."""
    library, marker = plant
    marker.unlink(missing_ok=True)
    shutil.copy(library, slot.path / "libz.so.1")
    needs = ["-Wl,--no-as-needed", library] if variable == "LD_LIBRARY_PATH" else []
    program = compile_program(slot.project / "app", PROGRAMS / "dynamic.c", *needs)
    where = {"LD_LIBRARY_PATH": SEARCHED, "LD_PRELOAD": "./libz.so.1"}[variable]
    done = subprocess.run(
        [program],
        cwd=slot.path,
        env={variable: where},
        capture_output=True,
        check=False,
    )
    assert done.stdout == b"dynamic\n", done
    assert marker.exists()


@pytest.mark.skipif(STRACE is None, reason="needs strace")
def test_launcher_opens_nothing_but_its_own(slot, hostile):
    """Every path of every call until the verifier starts is one of a few."""
    log = slot.data / "trace"
    given = [
        word for name, value in hostile.items() for word in ("-E", f"{name}={value}")
    ]
    command = [STRACE, "-o", log, "-s", "4096", "-e", "trace=%file", *given]
    for _ in range(2):  # unpacking, and unpacked
        done = subprocess.run(
            [*command, slot.launcher],
            cwd=slot.path,
            env={},
            capture_output=True,
            check=False,
        )
        assert done.stdout.startswith(b"argv "), done
        calls = [line for line in log.read_text().splitlines() if "execve(" not in line]
        named = {name for line in calls for name in re.findall(r'"([^"]*)"', line)}
        assert {name for name in named if not is_known(slot, name)} == set()
        assert "stoilo" in named


def is_known(slot, name):
    """Whether the launcher has reason to name this path."""
    tree = {
        part
        for path in slot.tree.rglob("*")
        for part in path.relative_to(slot.tree).parts
    }
    fixed = {
        "/proc/self/exe",
        str(slot.launcher),  # what that link says
        str(slot.tree / "stoilo-verifier"),
        str(slot.data),
        str(slot.path),
        "stoilo",
        "verifier",
        "lock",
        "",  # a descriptor itself
        ".",
        "stoilo-verifier.tar",
        "../../projects/p/stoilo-verifier.tar",
        slot.verifier.tree,
    }
    return name in fixed | tree or name.startswith(f".{slot.verifier.tree}.")


def test_program_is_static_and_hardened(built):
    """No interpreter and no needed library; nothing writable is executable."""
    said = subprocess.run(
        ["readelf", "-hldW", built], capture_output=True, text=True, check=True
    ).stdout
    assert "INTERP" not in said
    assert "NEEDED" not in said
    assert "RUNPATH" not in said
    assert "DYN (" in said  # its addresses differ at each start
    assert "GNU_RELRO" in said
    assert not re.search(r"(LOAD|GNU_STACK) .* RWE ", said)
