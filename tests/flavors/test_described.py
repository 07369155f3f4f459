"""Described libraries of a flavor: its level, its lock, and what a built tree must do.

The frozen runtime is played by a zygote that also finds packages made on the spot.
"""

import shlex
import sys
from pathlib import Path

import pytest

from stoilo.core.digests import Digest
from stoilo.core.errors import StoiloError
from stoilo.core.frozen_tree import platform_name
from stoilo.core.libraries import load_library, parse_library
from stoilo.flavors.described import (
    check_frozen,
    check_installed,
    check_versions,
    flavor_level,
    import_everything,
    library_files,
)
from stoilo.flavors.lock import Lock, LockedWheel, load_lock, parse_lock
from stoilo.flavors.manifest import held_libraries, parse_manifest, shipped_flavors
from stoilo.sandbox.process.supervisor import zygote_command

HEAD = 'name = "made"\ndistribution = "made"\nversions = ">=1,<2"\nsummary = "made"\n'
FILE = HEAD + 'level = "pure"\npreload = ["made"]\n[modules.made]\nnames = ["one"]\n'
GOOD = "def one():\n    return 1\n"


def manifest(*modules):
    lines = [f"  - {name}\n" for name in modules]
    return parse_manifest(f"requirements: []\nmodules:\n{''.join(lines)}".encode())


def lock(**versions):
    wheels = (LockedWheel(n, v, Digest("0" * 64), "x.whl") for n, v in versions.items())
    return Lock("mine", platform_name(), "3.11", tuple(wheels))


def refusal(function, *arguments):
    with pytest.raises(StoiloError) as caught:
        function(*arguments)
    assert caught.value.code == "STO-P001"
    return caught.value.message


def runtime(folder, text):
    """Return a program like a frozen runtime's, which also holds a package `made`."""
    (folder / "made").mkdir()
    (folder / "made" / "__init__.py").write_text(text)
    *words, entry = zygote_command()
    line = entry.replace("gc.disable()", f"sys.path += [{str(folder)!r}]")
    program = folder / "stoilo-runtime"
    program.write_text(f"#!/bin/sh\nexec {shlex.join([*words, line])}\n")
    program.chmod(0o755)
    return program


def try_frozen(folder, text, file=FILE):
    library = parse_library(file.encode())
    return check_frozen(runtime(folder, text), "pure", [library])


@pytest.mark.parametrize(
    ("modules", "level"),
    [
        ([], "pure"),
        (["numpy"], "numeric"),
        (["scipy"], "numeric"),
        (["torch", "scipy"], "tensor"),
    ],
)
def test_level_is_the_widest_that_a_module_needs(modules, level):
    assert (
        flavor_level(manifest(*modules) if modules else shipped_flavors()[0]) == level
    )


@pytest.mark.parametrize("flavor", shipped_flavors(), ids=lambda flavor: flavor.name)
def test_lock_of_a_shipped_flavor_fits_what_is_described(flavor):
    found = parse_lock(load_lock(flavor.name, platform_name()))
    check_versions(held_libraries(flavor), found)


def test_lock_with_another_version_is_refused_with_the_library():
    found = refusal(check_versions, [load_library("scipy")], lock(scipy="1.99.0"))
    assert "library scipy" in found
    assert "1.99.0" in found


def test_lock_without_the_library_is_refused():
    found = refusal(check_versions, [load_library("scipy")], lock(numpy="2.0"))
    assert "not among the locked wheels" in found


def test_what_a_library_needs_must_be_locked_too():
    library = parse_library(FILE.replace("level", 'needs = ["scipy"]\nlevel').encode())
    found = refusal(check_versions, [library], lock(made="1.0"))
    assert "scipy is not among" in found


def test_file_lies_beside_the_part_under_its_target_s_name():
    ((name, data),) = library_files([load_library("scipy")]).items()
    assert name.startswith("library-scipy-")
    assert parse_library(data).digest == load_library("scipy").digest


def test_every_public_name_is_taken():
    text = FILE.replace('"one"', '"__version__", "one"')
    found = import_everything([parse_library(text.encode())])
    assert found.splitlines()[3:] == [
        "def run(kwargs):",
        "    m0.one",
        "    return True",
    ]


def test_library_that_runs_frozen_is_taken(tmp_path):
    try_frozen(tmp_path, GOOD)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import os\nos.abort()\n", "does not start"),
        ("raise ImportError\n", "does not start"),
        ("two = 2\n", ""),
    ],
    ids=["native crash", "broken import", "vanished name"],
)
def test_library_that_does_not_run_frozen_is_refused_by_name(text, reason, tmp_path):
    found = refusal(try_frozen, tmp_path, text)
    assert "library made" in found
    assert reason in found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("two = 2\n", "one"),
        ("import os\nos.abort()\n", "SIGABRT"),
        ("def one():\n    import os\n    os.abort()\n", "SIGABRT"),
        ("def one():\n    import made.late\n", "made.late"),
        ("def one():\n    return open('/etc/hostname').read()\n", "/etc/hostname"),
    ],
    ids=["vanished", "crash at import", "crash", "late import", "file at first use"],
)
def test_check_in_the_build_s_environment_refuses_by_name(text, reason, tmp_path):
    found = refusal(install, tmp_path, text)
    assert "library made" in found
    assert reason in found


def install(folder, text, version="1.2"):
    """Check `made`, installed beside a copy of our source, as a build does."""
    (folder / "made").mkdir()
    (folder / "made" / "__init__.py").write_text(text)
    (folder / "made" / "late.py").write_text("")
    notes = folder / f"made-{version}.dist-info"
    notes.mkdir()
    facts = f"Metadata-Version: 2.1\nName: made\nVersion: {version}\n"
    (notes / "METADATA").write_text(facts)
    check_installed([parse_library(FILE.encode())], Path(sys.executable), folder)


def test_sound_library_passes_the_check_in_the_build_s_environment(tmp_path):
    install(tmp_path, GOOD)


def test_library_installed_in_another_version_is_refused(tmp_path):
    assert "2.0 is installed" in refusal(install, tmp_path, GOOD, "2.0")
