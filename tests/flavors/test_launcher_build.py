"""The launcher's build: refuses wrong values, says what it holds, gives the same bytes."""

import dataclasses
import os
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import InternalError, StoiloError, TrustError, UsageError
from stoilo.flavors import launcher_build
from stoilo.flavors.launcher_build import (
    LauncherHeld,
    build_launcher,
    describe_launcher,
    launcher_sources,
    render_held,
)

HELD = LauncherHeld("x86_64-linux", "1.2.0", 3, "1" * 64, 60_000_000, "2" * 64)
LINE = (
    f"stoilo-launcher/1 x86_64-linux 1.2.0 3 {'1' * 64} 60000000 {'2' * 64}\n".encode()
)
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    output = tmp_path_factory.mktemp("built") / "launcher"
    build_launcher(HELD, output)
    return output


@needs_gcc
def test_built_program_says_what_it_was_built_for(program):
    assert describe_launcher(program.read_bytes()) == HELD


@needs_gcc
def test_build_holds_no_path_of_the_builder(program):
    data = program.read_bytes()
    for trace in (
        str(launcher_sources()).encode(),
        b"launcher-",
        b"held.h",
        b"launcher.c",
    ):
        assert trace not in data


@pytest.mark.slow
@needs_gcc
def test_build_elsewhere_by_somebody_else_gives_the_same_bytes(program, tmp_path):
    """Another clone, other variables, another user where we may become one."""
    clone = tmp_path / "a longer path, with spaces"
    shutil.copytree(launcher_sources(), clone)
    (clone / "held.h").write_text(render_held(HELD))
    other = {"user": 65534} if os.geteuid() == 0 else {}
    if other:
        os.chown(clone, 65534, -1)
        for folder in clone.parents:
            if folder.stat().st_uid == os.geteuid() and folder != folder.parent:
                folder.chmod(folder.stat().st_mode | 0o011)
    environment = {
        "PATH": "/usr/bin:/bin",
        "CFLAGS": "-O0",
        "CPATH": "/nowhere",
        "SOURCE_DATE_EPOCH": "5",
        "LANG": "de_DE.UTF-8",
        "TMPDIR": str(clone),
        "HOME": "/nowhere",
    }
    subprocess.run(
        ["sh", clone / "build.sh", clone, clone / "out"],
        env=environment,
        cwd="/",
        check=True,
        **other,
    )
    assert (clone / "out").read_bytes() == program.read_bytes()


@needs_gcc
def test_another_value_gives_other_bytes(program, tmp_path):
    """The control of the builds that are equal."""
    build_launcher(dataclasses.replace(HELD, serial=4), tmp_path / "other")
    assert (tmp_path / "other").read_bytes() != program.read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"platform": ""},
        {"platform": 'x"\n#include "/etc/passwd'},
        {"version": "1 2"},
        {"version": "x" * 65},
        {"serial": 0},
        {"serial": 10**9},
        {"archive": "1" * 63},
        {"archive": "A" * 64},
        {"archive_size": 0},
        {"archive_size": 1 << 40},
        {"tree": "1" * 64 + "\n"},
    ],
)
def test_malformed_value_is_named_and_builds_nothing(change, tmp_path):
    with pytest.raises(UsageError, match=next(iter(change))) as caught:
        build_launcher(dataclasses.replace(HELD, **change), tmp_path / "out")
    assert caught.value.code == "STO-F014"
    assert list(tmp_path.iterdir()) == []


def test_missing_compiler_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InternalError, match="gcc") as caught:
        build_launcher(HELD, tmp_path / "out")
    assert caught.value.code == "STO-F011"


@needs_gcc
def test_compiler_that_stops_is_told_in_its_words(tmp_path, monkeypatch):
    shutil.copytree(launcher_sources(), tmp_path / "sources")
    (tmp_path / "sources" / "failure.c").write_text("int unused_warning() { int x; }\n")
    monkeypatch.setattr(
        launcher_build, "launcher_sources", lambda: tmp_path / "sources"
    )
    with pytest.raises(InternalError, match="unused_warning") as caught:
        build_launcher(HELD, tmp_path / "out")
    assert caught.value.code == "STO-F011"


@pytest.mark.parametrize("data", [b"", b"\x7fELF", LINE[:-1], LINE + LINE])
def test_file_that_is_no_launcher_is_refused(data):
    with pytest.raises(TrustError) as caught:
        describe_launcher(data)
    assert caught.value.code == "STO-F006"


@given(st.binary(max_size=200), st.integers(0, len(LINE) - 1), st.binary(max_size=3))
def test_any_bytes_are_described_or_refused(around, at, put):
    data = around + LINE[:at] + put + LINE[at:]
    try:
        found = describe_launcher(data)
    except StoiloError as error:
        assert error.code == "STO-F006"
    else:
        assert render_held(found)
