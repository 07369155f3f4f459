"""Launchers of our own build, verifiers that stand in, slots as BOINC makes them."""

import hashlib
import io
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from stoilo.core.frozen_tree import platform_name, render_tree
from stoilo.flavors.launcher_build import (
    LauncherHeld,
    build_launcher,
    launcher_sources,
    render_held,
)
from stoilo.flavors.packing import describe_tree, write_archive

PROGRAMS = Path(__file__).parent / "programs"
ARCHIVE = "stoilo-verifier.tar"
SOFT_LINK = f"<soft_link>../../projects/p/{ARCHIVE}</soft_link>\n"
SOURCES = [
    "launcher",
    "place",
    "tree",
    "unpack",
    "archive",
    "header",
    "manifest",
    "sha256",
    "failure",
]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"]
# What a launcher is first built for; each test's own values are put in their place.
BLANK = LauncherHeld(platform_name(), "0.1.0", 7, "a" * 64, 0x12345678, "b" * 64)


def random_bits() -> int:
    """Return how many bits of an address the kernel draws."""
    try:
        return int(Path("/proc/sys/vm/mmap_rnd_bits").read_text())
    except (OSError, ValueError):
        return 28


# gcc 12's sanitizers do not expect addresses of more than 28 random bits.
FIXED = ["setarch", "-R"] if random_bits() > 28 else []


@dataclass(frozen=True)
class Verifier:
    """An archive, and the digest of its tree."""

    archive: bytes
    tree: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.archive).hexdigest()


@dataclass(frozen=True)
class Slot:
    """A slot of a BOINC data directory, with a launcher and a verifier of a project."""

    data: Path
    launcher: Path
    verifier: Verifier
    before: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return self.data / "slots" / "0"

    @property
    def project(self) -> Path:
        return self.data / "projects" / "p"

    @property
    def place(self) -> Path:
        return self.data / "stoilo" / "verifier"

    @property
    def tree(self) -> Path:
        return self.place / self.verifier.tree

    def run(self, *words: str, **options) -> subprocess.CompletedProcess:
        options = {"cwd": self.path, "env": {}, "timeout": 120} | options
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        command = [*self.before, self.launcher, *words]
        return subprocess.run(command, check=False, **options)

    def refusal(self, **options) -> tuple[int, str]:
        """Run it and return exit status and code; one line, and nothing was started."""
        done = self.run(**options)
        assert done.stdout == b"", done
        assert done.stderr.count(b"\n") == 1, done.stderr
        name, code, rest = done.stderr.decode("ascii").split(" ", 2)
        assert name == "stoilo-launcher:"
        assert rest.count("; ") >= 2, rest  # what happened; why; what next
        return done.returncode, code

    def starts(self, **options) -> bool:
        """Run it and return whether the verifier was started."""
        done = self.run(**options)
        return done.stdout.startswith(b"argv ") and done.stderr == b""

    def leftovers(self) -> list[str]:
        return sorted(path.name for path in self.place.glob(".*"))


def compile_c(output: Path, *words: object) -> Path:
    command = ["gcc", "-std=c11", "-O1", "-o", output, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def pack(folder: Path) -> Verifier:
    """Return the archive of the tree in `folder`."""
    tree = describe_tree(folder, "verifier", platform_name())
    stream = io.BytesIO()
    write_archive(folder, tree, stream)
    digest = hashlib.sha256(render_tree(tree)).hexdigest()
    return Verifier(stream.getvalue(), digest)


def put_values(program: bytes, verifier: Verifier) -> bytes:
    """Put a verifier's values into a built program, where BLANK's are."""
    size = BLANK.archive_size.to_bytes(8, "little")
    assert program.count(size) == 1
    program = program.replace(BLANK.archive.encode(), verifier.digest.encode())
    program = program.replace(BLANK.tree.encode(), verifier.tree.encode())
    return program.replace(size, len(verifier.archive).to_bytes(8, "little"))


@pytest.fixture(scope="session")
def workshop(tmp_path_factory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc and libc6-dev: apt-get install gcc libc6-dev")
    return tmp_path_factory.mktemp("launcher")


@pytest.fixture(scope="session")
def stand_in(workshop) -> Path:
    return compile_c(workshop / "stand_in", "-static", PROGRAMS / "stand_in.c")


@pytest.fixture(scope="session")
def built(workshop) -> Path:
    build_launcher(BLANK, workshop / "built")
    return workshop / "built"


@pytest.fixture(scope="session")
def held_header() -> str:
    """Return the ``held.h`` of launchers into which a test's values are put."""
    return render_held(BLANK)


@pytest.fixture(scope="session")
def fixed_addresses() -> list[str]:
    """Return what a sanitized program is started by, where one can run at all."""
    if FIXED and subprocess.run([*FIXED, "true"], check=False).returncode != 0:
        pytest.skip("sanitizers cannot run under this kernel's random addresses")
    return FIXED


@pytest.fixture(scope="session")
def sanitized(workshop, fixed_addresses) -> Path:  # noqa: ARG001 - may skip
    """The launcher, with sanitizers, a short patience and plain SHA-256."""
    (workshop / "held.h").write_text(render_held(BLANK))
    sources = [launcher_sources() / f"{name}.c" for name in SOURCES]
    options = [*SANITIZERS, "-DUNPACK_WAITS=4", "-DSHA256_PLAIN", f"-I{workshop}"]
    return compile_c(workshop / "sanitized", *options, *sources)


@pytest.fixture(scope="session")
def verifier_tree(workshop, stand_in) -> Path:
    """A small tree: the stand-in, and files of several sizes in several directories."""
    tree = workshop / "tree"
    deep = tree / "_internal" / "lib" / ("d" * 90)
    deep.mkdir(parents=True)
    shutil.copy(stand_in, tree / "stoilo-verifier")
    (tree / "_internal" / "empty").write_bytes(b"")
    (tree / "_internal" / "block").write_bytes(b"x" * 512)
    (tree / "_internal" / "lib" / "large").write_bytes(bytes(range(256)) * 1100)
    (deep / "named-long").write_bytes(b"y" * 513)
    return tree


@pytest.fixture(scope="session")
def verifier(verifier_tree) -> Verifier:
    return pack(verifier_tree)


@pytest.fixture(scope="session")
def pack_tree() -> Callable[[Path], Verifier]:
    return pack


@pytest.fixture(scope="session")
def make_verifier() -> Callable[[bytes, str], Verifier]:
    return Verifier


@pytest.fixture(scope="session")
def compile_program() -> Callable[..., Path]:
    return compile_c


MakeSlot = Callable[..., Slot]


@pytest.fixture
def make_slot(tmp_path, built, verifier) -> MakeSlot:
    """Return a maker of slots: of which verifier, of which build, with which file."""

    def make(held: Verifier = verifier, *, program: Path = built, archive=None) -> Slot:
        launcher = tmp_path / "data/projects/p/launcher"
        before = tuple(FIXED) if program.name == "sanitized" else ()
        slot = Slot(tmp_path / "data", launcher, held, before)
        slot.path.mkdir(parents=True)
        slot.project.mkdir(parents=True)
        slot.launcher.write_bytes(put_values(program.read_bytes(), held))
        slot.launcher.chmod(0o755)
        (slot.project / ARCHIVE).write_bytes(
            held.archive if archive is None else archive
        )
        (slot.path / ARCHIVE).write_text(SOFT_LINK)
        return slot

    return make


@pytest.fixture
def slot(make_slot) -> Slot:
    return make_slot()
