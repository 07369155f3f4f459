"""Launchers with one line taken out: each is seen by what the other tests look at."""

import os
import subprocess

import pytest

from stoilo.flavors.launcher_build import launcher_sources

pytestmark = pytest.mark.slow

MAKE = "mkdirat(place->fd, unfinished, 0700)"
FAULTS = {
    "tree": ("tree.c", "check_tree(tree, held);", ""),
    "extra": ("tree.c", 'refuse(path, "does not belong to it");', "return;"),
    "links": ("tree.c", "status.st_nlink != 1", "false"),
    "environment": ("launcher.c", "(program, argv, envp)", "(program, argv, environ)"),
    "words": ("launcher.c", "if (is_allowed(words[i]))", ""),
    "descriptors": (
        "launcher.c",
        "close_range(STDERR_FILENO + 1, ~0U, 0) != 0",
        "false",
    ),
    "signals": ("launcher.c", "reset_signals();\n    (void)", "(void)"),
    "private": ("place.c", "if (!is_private(fd))", "if (false)"),
    "rename": (
        "unpack.c",
        MAKE,
        MAKE.replace("unfinished", "strcpy(unfinished, digest)"),
    ),
}


@pytest.fixture
def faulty(request, workshop, make_slot, compile_program):
    """Return a slot whose launcher has the fault of this test's parameter."""
    file, old, new = FAULTS[request.param]
    folder = workshop / f"fault-{request.param}"
    folder.mkdir()
    for path in launcher_sources().glob("*.[ch]"):
        text = path.read_text()
        if path.name == file:
            assert text.count(old) == 1
            text = text.replace(old, new)
        (folder / path.name).write_text(text)
    (folder / "held.h").write_text(request.getfixturevalue("held_header"))
    sources = sorted(folder.glob("*.c"))
    program = compile_program(folder / "launcher", "-static", f"-I{folder}", *sources)
    return make_slot(program=program)


def only(name):
    return pytest.mark.parametrize("faulty", [name], indirect=True)


@only("tree")
def test_without_the_comparison_a_changed_tree_runs(faulty):
    assert faulty.starts()
    (faulty.tree / "_internal/block").write_bytes(b"changed")
    assert faulty.starts()


@only("extra")
def test_without_its_line_an_extra_file_passes(faulty):
    assert faulty.starts()
    (faulty.tree / "_internal/extra.so").write_bytes(b"")
    assert faulty.starts()


@only("links")
def test_without_its_line_a_second_name_passes(faulty):
    assert faulty.starts()
    os.link(faulty.tree / "_internal/block", faulty.place / "x")
    assert faulty.starts()


@only("environment")
def test_inherited_environment_is_seen(faulty):
    assert b"env LD_LIBRARY_PATH=." in faulty.run(env={"LD_LIBRARY_PATH": "."}).stdout


@only("words")
def test_words_that_pass_are_seen(faulty):
    assert b"argv --root=/x\n" in faulty.run("--root=/x").stdout


@only("descriptors")
def test_inherited_descriptor_is_seen(faulty):
    inherited = os.open("/dev/null", os.O_RDONLY)
    done = faulty.run(pass_fds=[inherited])
    os.close(inherited)
    assert f"fd {inherited}\n".encode() in done.stdout


@only("signals")
def test_inherited_signal_state_is_seen(faulty):
    command = ["env", "--ignore-signal=TERM", faulty.launcher]
    done = subprocess.run(command, cwd=faulty.path, capture_output=True, check=False)
    assert b"ignored 15\n" in done.stdout


@only("private")
def test_without_its_line_an_open_directory_passes(faulty):
    assert faulty.starts()
    faulty.place.parent.chmod(0o777)
    assert faulty.starts()


@only("rename")
def test_without_the_temporary_name_a_kill_leaves_a_half_tree(faulty):
    command = ["strace", "-o", os.devnull, "-e", "inject=fsync:signal=SIGKILL:when=2"]
    try:
        subprocess.run(
            [*command, faulty.launcher], cwd=faulty.path, env={}, check=False
        )
    except FileNotFoundError:
        pytest.skip("needs strace")
    assert faulty.tree.exists()
    assert faulty.refusal() == (4, "STO-F006")
