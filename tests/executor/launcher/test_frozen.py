"""The real verifier behind the real launcher: frozen here, started among planted libraries."""

import base64
import hashlib
import shutil
import subprocess
import time

import pytest

from stoilo.core.frozen_tree import platform_name
from stoilo.executor.verifier.trust import Built, render_built
from stoilo.flavors.build import build_verifier
from stoilo.flavors.launcher_build import LauncherHeld, build_launcher
from stoilo.signer.development.root import create_development_root
from tests.support.gate import INSTALLED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NAMES = [
    "libc.so.6",
    "libz.so.1",
    "libpython3.11.so.1.0",
    "libdl.so.2",
    "libm.so.6",
    "libpthread.so.0",
    "libcrypto.so.3",
    "libseccomp.so.2",
]
SEARCHED = "../../projects/p:.:../.."
STRACE = shutil.which("strace")


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """Return a data directory with a launcher and the verifier that it was built for."""
    folder = tmp_path_factory.mktemp("frozen")
    create_development_root(
        folder / "keys", "project.example/log", int(time.time()), installed=INSTALLED
    )
    built = Built(
        format="stoilo-built/1",
        part="verifier",
        platform=platform_name(),
        version="9.8.7",
        serial=5,
        commit="",
        root=base64.b64encode((folder / "keys" / "root.json").read_bytes()).decode(),
        origin="project.example/log",
        development=True,
    )
    part = build_verifier(render_built(built), folder / "build")
    slot, project = folder / "data/slots/3", folder / "data/projects/p"
    slot.mkdir(parents=True)
    project.mkdir(parents=True)
    archive = shutil.move(part.archive, project / "verifier.tar")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    held = LauncherHeld(part.platform, "9.8.7", 5, digest, part.archive_size, part.tree)
    build_launcher(held, project / "launcher")
    link = "<soft_link>../../projects/p/verifier.tar</soft_link>\n"
    (slot / "stoilo-verifier.tar").write_text(link)
    shutil.rmtree(folder / "build")
    return slot


def start(slot, *words, program=None, **variables):
    launcher = slot.parents[1] / "projects" / "p" / "launcher"
    return subprocess.run(
        [program or launcher, *words],
        cwd=slot,
        env=variables,
        capture_output=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def plants(frozen, workshop, compile_program):
    """Plant a library under every name; yield the file that it makes when it is loaded."""
    source = workshop / "plant.c"
    marker = workshop / "frozen-loaded"
    source.write_text(
        "#include <fcntl.h>\n__attribute__((constructor)) static void mark(void)"
        f'{{ (void)open("{marker}", O_CREAT, 0600); }}\n'
    )
    library = compile_program(workshop / "frozen-plant.so", "-shared", "-fPIC", source)
    data = frozen.parents[1]
    planted = [
        folder / name
        for folder in (frozen, data, data / "projects/p")
        for name in NAMES
    ]
    for path in planted:
        shutil.copy(library, path)
    yield marker
    for path in planted:
        path.unlink()


def test_frozen_verifier_starts_and_says_its_version(frozen):
    done = start(frozen, "--version", "--root=/x")
    assert (done.stderr, done.returncode) == (b"", 0)
    assert done.stdout == b"stoilo-verifier 9.8.7 (5)\n"


def test_slot_without_a_task_is_refused_by_code(frozen):
    done = start(frozen)
    assert done.returncode != 0 or (frozen / "boinc_temporary_exit").exists()
    assert b"STO-" in done.stderr


def test_no_planted_library_is_loaded_at_any_stage(frozen, plants):
    hostile = {"LD_LIBRARY_PATH": SEARCHED, "LD_PRELOAD": "./libz.so.1"}
    hostile |= {"PYTHONPATH": ".", "PYTHONHOME": ".", "_PYI_APPLICATION_HOME_DIR": "."}
    done = start(frozen, "--version", **hostile)
    assert done.stdout == b"stoilo-verifier 9.8.7 (5)\n"
    assert not plants.exists()


@pytest.mark.skipif(STRACE is None, reason="needs strace")
@pytest.mark.usefixtures("plants")
def test_nothing_is_opened_where_a_server_writes(frozen):
    """Of the slot, the project and the data directory: soft link and archive, no more."""
    data = frozen.parents[1]
    shutil.rmtree(data / "stoilo", ignore_errors=True)
    log = data.parent / "trace"
    what = ["-f", "-y", "-s", "4096", "-e", "trace=open,openat,openat2,execve"]
    given = ["-E", f"LD_LIBRARY_PATH={SEARCHED}"]
    command = [
        STRACE,
        "-o",
        log,
        *what,
        *given,
        data / "projects/p/launcher",
        "--version",
    ]
    done = subprocess.run(command, cwd=frozen, env={}, capture_output=True, check=False)
    assert done.stdout == b"stoilo-verifier 9.8.7 (5)\n"
    opened = {
        line.rsplit("<", 1)[1][:-1]
        for line in log.read_text().splitlines()
        if line.endswith(">")
    }
    ours = {path for path in opened if path.startswith(str(data))}
    home = str(data / "stoilo")
    assert {path for path in ours if not path.startswith(home)} <= {
        str(data),
        str(frozen / "stoilo-verifier.tar"),
        str(data / "projects/p/verifier.tar"),
    }
    assert f"{home}/verifier" in ours  # the trace saw something


def test_control_without_the_launcher_they_are_loaded(frozen, plants):
    assert start(frozen, "--version").returncode == 0
    (program,) = (frozen.parents[1] / "stoilo/verifier").glob("*/stoilo-verifier")
    done = start(frozen, "--version", program=program, LD_LIBRARY_PATH=SEARCHED)
    assert done.returncode != 0
    assert b"projects/p/lib" in done.stderr or plants.exists()


def test_extra_library_in_the_frozen_tree_is_refused(frozen):
    assert start(frozen, "--version").returncode == 0
    (tree,) = (frozen.parents[1] / "stoilo/verifier").glob("????????*")
    extra = tree / "_internal" / "libnss_files.so.2"
    extra.write_bytes(b"")
    done = start(frozen, "--version")
    extra.unlink()
    assert (done.returncode, done.stdout) == (4, b"")
    assert b"STO-F006" in done.stderr
    assert start(frozen, "--version").returncode == 0
