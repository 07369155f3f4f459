"""Frozen parts, each built once a session and again by somebody else, from another place."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from stoilo.core.frozen_tree import platform_name
from stoilo.executor.verifier.trust import Built, render_built
from tests.support.openpython import find_open_python

ROOT = Path(__file__).resolve().parents[2]
OTHER_UID = 65534
# Two thirds of a build are the compressor's; how much it tries is no question here.
BUILD_FLAVOR = """
import sys
from stoilo.flavors import packing
packing.XZ_PRESET = 0
from stoilo.cli.main import main
sys.exit(main(["flavor", "build", *sys.argv[1:]]))
"""
BUILD_VERIFIER = """
import sys
from pathlib import Path
from stoilo.flavors.build import build_verifier
build_verifier(sys.stdin.buffer.read(), Path(sys.argv[1]), python=Path(sys.argv[2]))
"""


@dataclass(frozen=True)
class Builder:
    """Somebody who builds: which clone, whose user, which home."""

    clone: Path
    home: Path
    python: str  # that runs our program
    base: str  # that is frozen
    words: tuple[str, ...] = ()
    wheels: Path | None = None  # where pip finds them, instead of its own places

    def run(self, *arguments, data=None):
        site = [path for path in sys.path if path.endswith("site-packages")]
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "XDG"))
        }
        if self.wheels is not None:
            environment = {n: v for n, v in environment.items() if n[:4] != "PIP_"}
            environment |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
            environment |= {"PIP_FIND_LINKS": str(self.wheels)}
        environment |= {
            "PYTHONPATH": os.pathsep.join([str(self.clone), *site]),
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
        }
        return subprocess.run(
            [*self.words, self.python, *arguments],
            input=data,
            capture_output=True,
            env=environment,
            cwd=self.home,
            timeout=900,
            check=False,
        )

    def build(self, part, output):
        base = ["--python", self.base]
        if part == "verifier":
            data = render_built(BUILT)
            done = self.run("-c", BUILD_VERIFIER, output, self.base, data=data)
        else:
            done = self.run("-c", BUILD_FLAVOR, part, "--output", output, *base)
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        return Path(output)


BUILT = Built(
    format="stoilo-built/1",
    part="verifier",
    platform=platform_name(),
    version="0",
    serial=1,
    commit="",
    root=base64.b64encode(b"{}").decode(),
    origin="builds.example",
    development=True,
)


def has_library(python):
    """Whether the interpreter's shared library is there, which a frozen tree needs."""
    ask = (
        "print(*(sysconfig.get_config_var(name) for name in ('INSTSONAME', 'LIBDIR')))"
    )
    code = f"import sysconfig; {ask}"
    done = subprocess.run(
        [python, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    name, folder = done.stdout.split()
    places = [Path(folder), *Path(folder).glob("*-linux-gnu")]
    return any((place / name).exists() for place in places)


def download_wheels(folder):
    """Fetch what the locks name, as this session's user, for one who may have no index."""
    folder.mkdir()
    for part in ("tools", "pure", "pillow", "verifier"):
        lock = ROOT / "stoilo" / "flavors" / "locks" / f"{part}.{platform_name()}.txt"
        words = ["--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", *words, "-d", folder, "-r", lock],
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()[-2000:]
    return folder


@pytest.fixture(scope="session")
def builders():
    """Yield two builders: different clones, paths, caches, and users where possible."""
    if shutil.which("objcopy") is None:
        pytest.skip("needs binutils")
    own = getattr(sys, "_base_executable", sys.executable)
    shared = find_open_python()
    base = shared if shared and has_library(shared) else own
    if not has_library(base):
        pytest.skip("needs libpython3.11, the interpreter's shared library")
    place = Path(tempfile.mkdtemp(prefix="frozen-"))
    place.chmod(0o755)
    clones = []
    for name in ("one", "another/deeper"):
        clone = place / name / "stoilo-source"
        clone.mkdir(parents=True)
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "stoilo", clone / "stoilo", ignore=ignore)
        home = place / name / "home"
        home.mkdir()
        clones.append((clone, home))
    other = os.geteuid() == 0 and shared is not None and shutil.which("setpriv")
    words = (
        ["setpriv", f"--reuid={OTHER_UID}", f"--regid={OTHER_UID}", "--clear-groups"]
        if other
        else []
    )
    if other:
        for path in (clones[1][1], *clones[1][0].rglob("*")):
            os.chown(path, OTHER_UID, OTHER_UID)
    yield (
        Builder(*clones[0], sys.executable, base),
        Builder(
            *clones[1],
            shared if other else sys.executable,
            base,
            tuple(words),
            download_wheels(place / "wheels"),
        ),
    )
    shutil.rmtree(place)


@pytest.fixture(scope="session")
def frozen(builders):
    """Return a function: part → its first build's output directory."""
    made = {}

    def build(part):
        if part not in made:
            output = builders[0].home / f"out-{part}"
            made[part] = builders[0].build(part, str(output))
        return made[part]

    return build


@pytest.fixture(scope="session")
def frozen_again(builders):
    """Return a function: part → the output of the other builder."""
    made = {}

    def build(part):
        if part not in made:
            output = builders[1].home / f"somewhere-else-{part}"
            made[part] = builders[1].build(part, str(output))
        return made[part]

    return build


def read_record(output, part):
    folder = output / "flavor" / part
    return json.loads((folder / f"{platform_name()}.json").read_text())
