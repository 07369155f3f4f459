"""The wheel, installed with its base dependencies alone, used from outside the tree.

The base dependencies are copied from this environment as their own records list them, so
that the locked versions are meant and no network is needed.
"""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HEAVY = ("grpc", "rich", "numpy", "cryptography", "sqlalchemy", "torch")
DATA = {
    "stoilo/py.typed",
    "stoilo/core/codes/U.toml",
    "stoilo/core/rpc/tasks_pb2.py",
    "stoilo/core/rpc/tasks_pb2.pyi",
    "stoilo/policies/levels/pure.toml",
    "stoilo/policies/levels/numeric.toml",
    "stoilo/policies/data/default.toml",
    "stoilo/executor/launcher/launcher.c",
    "stoilo/executor/launcher/build.sh",
    "stoilo/flavors/specs/numeric.yaml",
    "stoilo/server/migrations/script.py.mako",
    "stoilo/cli/demo/hostile/dunder_walk.txt",
    "stoilo/web/static/audit.css",
    "stoilo/web/templates/base.html",
}
BASE = """
import stoilo.cli.task, stoilo.cli.policy, stoilo.client.futures
print("ok")
"""
TASK = "def task(kwargs):\n    return kwargs['x'] + 1\n"
HOSTILE = "import os\n\n\ndef task(kwargs):\n    return os.listdir('/')\n"
IMPORT = """
import sys, time
began = time.process_time()
import stoilo
print(time.process_time() - began)
print([name for name in {names} if name in sys.modules])
print(stoilo.__file__)
"""


def base_distributions():
    """Return what a base install brings, without stoilo itself."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = set()
    for line in declared["dependencies"]:
        needed_by(Requirement(line).name, found)
    return found


def needed_by(name, seen):
    """Return the distributions that `name` needs without extras, itself included."""
    if name not in seen:
        seen.add(name)
        for line in importlib.metadata.requires(name) or ():
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                needed_by(wanted.name, seen)
    return seen


def copy_distribution(name, site):
    """Copy the files of one installed distribution; its commands stay behind."""
    for file in importlib.metadata.files(name):
        if ".." not in file.parts and file.locate().is_file():
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file.locate(), target)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return a runner of the base install's commands, outside the tree."""
    home = tmp_path_factory.mktemp("base install")
    venv.create(home / "venv", with_pip=False, symlinks=True)
    (site,) = (home / "venv" / "lib").glob("python*/site-packages")
    for name in base_distributions():
        copy_distribution(name, site)
    python = home / "venv" / "bin" / "python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        python,
    ]
    words = ["install", "--quiet", "--no-index", "--no-deps", wheel]
    subprocess.run([*pip, *words], check=True, capture_output=True)
    (home / "task.py").write_text(TASK)
    (home / "hostile.py").write_text(HOSTILE)
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}

    def run(*command):
        words = [str(python.parent / command[0]), *command[1:]]
        return subprocess.run(
            words, cwd=home, env=kept, capture_output=True, text=True, check=False
        )

    return run


def test_wheel_holds_every_module_and_data_file(wheel):
    tracked = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "stoilo").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert names >= DATA
    assert {name for name in names if ".dist-info/" not in name} == tracked


def test_base_install_is_a_few_dependencies_and_what_they_need():
    assert len(base_distributions()) <= 8


def test_the_source_distribution_makes_the_same_wheel(wheel, tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-d", tmp_path]
    subprocess.run([*build, "-t", "sdist"], cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    tree = tmp_path / archive.name.removesuffix(".tar.gz")
    subprocess.run([*build, "-t", "wheel"], cwd=tree, check=True, capture_output=True)
    (again,) = tmp_path.glob("*.whl")
    assert contents(again) == contents(wheel)


def contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_import_is_quick_and_loads_nothing_heavy(installed):
    runs = [
        installed("python", "-c", IMPORT.format(names=HEAVY)).stdout.splitlines()
        for _ in range(5)
    ]
    assert min(float(seconds) for seconds, _, _ in runs) < 0.150
    assert {loaded for _, loaded, _ in runs} == {"[]"}
    assert all("site-packages" in place for _, _, place in runs)


def test_negative_control_sees_what_an_import_loads(installed):
    code = IMPORT.replace("import stoilo\n", "import stoilo, grpc\n")
    assert "['grpc']" in installed("python", "-c", code.format(names=HEAVY)).stdout


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("policy", "check", "task.py"), 0),
        (("policy", "check", "hostile.py"), 3),
        (("policy", "show", "numeric"), 0),
        (("explain", "STO-U002"), 0),
        (("config", "show"), 0),
        (("--help",), 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_researchers_commands_work(installed, command, code):
    done = installed("stoilo", *command)
    assert (done.returncode, bool(done.stdout)) == (code, True), done.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("up", "--data", "data"), "server"),
        (("demo",), "server"),
        (("boinc", "account", "--data", "data", "--email", "a@b.example"), "server"),
        (("sandbox", "run", "task.py"), "executor"),
        (("sandbox", "probe", "task.py"), "executor"),
        (("audit", "verify", "."), "executor"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_other_commands_name_the_missing_extra(installed, command, extra):
    done = installed("stoilo", *command)
    assert (done.returncode, done.stdout) == (2, "")
    assert "[STO-U002]" in done.stderr
    assert f"stoilo[{extra}]" in done.stderr


def test_nothing_of_the_base_install_needs_more_than_that(installed):
    code = (
        f"import stoilo\nfor name in stoilo.__all__:\n    getattr(stoilo, name)\n{BASE}"
    )
    done = installed("python", "-c", code)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_client_connects_as_far_as_it_can(installed):
    code = "import stoilo\ntry:\n    stoilo.connect_sync('127.0.0.1:9')\n"
    code += "except stoilo.StoiloError as error:\n    print(error.code)\n"
    assert installed("python", "-c", code).stdout.startswith("STO-C")
