"""Examples are imported as a person runs them: their folder is on the path."""

import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def example(monkeypatch, tmp_path):
    """Return what imports an example by its name; what it keeps goes to `tmp_path`."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    return importlib.import_module


@pytest.fixture(scope="session")
def folder():
    return ROOT / "examples"


@pytest.fixture(scope="session")
def runner():
    """Return the script that runs notebooks."""
    path = ROOT / "scripts" / "run_notebooks.py"
    spec = importlib.util.spec_from_file_location("run_notebooks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
