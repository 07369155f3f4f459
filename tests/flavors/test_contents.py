from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from stoilo.core.errors import StoiloError
from stoilo.core.libraries import load_library
from stoilo.flavors.contents import (
    library_stem,
    load_contents,
    parse_contents,
    unite_contents,
)
from stoilo.flavors.manifest import held_libraries, shipped_flavors

LIBRARIES = sorted({x.name for one in shipped_flavors() for x in held_libraries(one)})
SCRIPT = Path(__file__).parents[2] / "scripts" / "write_contents.py"


def load_script():
    spec = importlib.util.spec_from_file_location("write_contents", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("part", ["pure", "numeric", "tensor", "verifier"])
def test_committed_modules_are_those_that_are_loaded(part):
    """A difference is a review: then `python scripts/write_contents.py`."""
    if part == "tensor":
        pytest.importorskip("torch")
    assert list(load_contents(part).modules) == sorted(
        set(load_script().list_modules(part))
    )


@pytest.mark.parametrize("name", LIBRARIES)
def test_committed_list_of_a_library_is_what_it_loads(name):
    library = load_library(name)
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"needs {name}")
    found = load_script().list_library(library, load_contents(library.level))
    assert load_contents(f"library-{name}") == found


def test_flavor_holds_what_its_lists_hold_each_once():
    one = parse_contents("[modules]\na\nb\n[libraries]\nlibz\n")
    other = parse_contents("[modules]\nb\nc\n[data]\nx\n")
    united = unite_contents([one, other])
    assert united.modules == ("a", "b", "c")
    assert (united.libraries, united.data) == (("libz",), ("x",))


def test_each_flavor_holds_what_the_narrower_one_does():
    pure, numeric, tensor = map(load_contents, ("pure", "numeric", "tensor"))
    assert set(pure.modules) < set(numeric.modules)
    assert set(numeric.modules) - set(tensor.modules) == set()


@pytest.mark.parametrize(
    "part",
    ["pure", "numeric", "tensor", "verifier", *(f"library-{one}" for one in LIBRARIES)],
)
def test_no_part_holds_what_unpickles_for_a_living_or_serves(part):
    tops = {name.partition(".")[0] for name in load_contents(part).modules}
    assert not tops & {
        "cloudpickle",
        "dill",
        "grpc",
        "sqlalchemy",
        "pip",
        "PyInstaller",
    }
    own = {name for name in load_contents(part).modules if name.startswith("stoilo.")}
    assert not any(n.startswith(("stoilo.server", "stoilo.client")) for n in own)


@pytest.mark.parametrize("part", ["pure", "numeric", "tensor"])
def test_flavor_holds_nothing_of_the_verifier(part):
    modules = load_contents(part).modules
    refused = (
        "stoilo.executor",
        "stoilo.audit",
        "stoilo.signer",
        "cryptography",
        "tuf",
    )
    assert not [name for name in modules if name.startswith(refused)]


@pytest.mark.parametrize(
    "text",
    [
        "json\n",
        "[other]\njson\n",
        "[modules]\nb\na\n",
        "[modules]\na\na\n",
        "[modules]\na b\n",
        "[modules]\n../a\n",
        "[data]\n-x\n",
    ],
)
def test_list_in_another_form_is_refused(text):
    with pytest.raises(StoiloError) as caught:
        parse_contents(text)
    assert caught.value.code == "STO-F012"


def test_list_is_read_by_section():
    contents = parse_contents("# note\n[modules]\na\na.b  # why\n\n[libraries]\nlibz\n")
    assert (contents.modules, contents.libraries) == (("a", "a.b"), ("libz",))


@pytest.mark.parametrize("part", ["nothing", "../specs/pure", ""])
def test_part_without_a_list_has_its_code(part):
    with pytest.raises(StoiloError) as caught:
        load_contents(part)
    assert caught.value.code == "STO-F014"


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("libz.so.1", "libz"),
        ("libscipy_openblas64_-fdde5778.so", "libscipy_openblas64_"),
        ("libgfortran-040039e1-0352e75f.so.5.0.0", "libgfortran"),
        ("libpython3.11.so.1.0", "libpython3.11"),
        ("libstdc++.so.6", "libstdc++"),
        ("notes.txt", "notes.txt"),
    ],
)
def test_library_is_named_without_version_and_mark(name, stem):
    assert library_stem(name) == stem
