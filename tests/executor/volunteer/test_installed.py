"""What is installed here runs tasks: whatever can be imported, in one warm jail a level."""

import msgspec
import pytest

from stoilo.core.errors import InternalError, PolicyRefusal
from stoilo.core.levels import load_levels
from stoilo.core.libraries import load_library
from stoilo.executor.volunteer import installed
from stoilo.executor.volunteer.installed import InstalledRuntimes, installed_flavors
from stoilo.flavors.manifest import FlavorManifest, find_flavor
from tests.executor.verifier.test_tree_runtimes import LEVEL, Made
from tests.support.gate import FLAVOR


def test_installed_runtimes_hold_what_can_be_imported(gate):
    made = []
    runtimes = InstalledRuntimes(lambda level: made.append(Made(level, ())) or made[-1])
    assert find_flavor("pure").digest in runtimes.flavors(gate.root.trust)
    assert installed_flavors() == runtimes.flavors(gate.root.trust)
    runtimes.jail(LEVEL, FLAVOR, gate.root.trust, None)
    runtimes.jail(LEVEL, "other", gate.root.trust, None)
    (only,) = made
    runtimes.close()
    assert only.closed
    with pytest.raises(InternalError, match="STO-S008"):
        runtimes.jail(LEVEL, FLAVOR, gate.root.trust, None)


@pytest.fixture
def science(monkeypatch):
    """A shipped flavor with scipy, installed here; returns its id."""
    made = FlavorManifest("science", (), ("scipy",), "3.11", "a" * 64, "b" * 32)
    monkeypatch.setattr(installed, "shipped_flavors", lambda: (made,))
    return made.digest


@pytest.fixture
def runtimes():
    made = InstalledRuntimes(lambda level: Made(level, ()))
    yield made
    made.close()


def level_with(*libraries, name="numeric"):
    level = next(one for one in load_levels() if one.name == name)
    return msgspec.structs.replace(level, libraries=libraries)


def test_flavor_runs_with_exactly_the_libraries_of_this_installation(
    gate, science, runtimes
):
    scipy = load_library("scipy").digest
    assert runtimes.jail(level_with(scipy), science, gate.root.trust, None)
    assert runtimes.jail(level_with(name="pure"), science, gate.root.trust, None)
    for level in (level_with(), level_with("c" * 64), level_with(scipy, "c" * 64)):
        with pytest.raises(PolicyRefusal, match="STO-X013"):
            runtimes.jail(level, science, gate.root.trust, None)
    with pytest.raises(PolicyRefusal, match="STO-X013"):
        runtimes.jail(level_with(scipy), FLAVOR, gate.root.trust, None)


def test_flavor_is_offered_where_its_libraries_are_in_a_described_version(
    science, monkeypatch
):
    pytest.importorskip("scipy")
    assert installed_flavors() == {science}
    monkeypatch.setattr(installed, "is_installed", lambda _: False)
    assert installed_flavors() == frozenset()


def test_levels_with_other_libraries_have_jails_of_their_own(gate, science, runtimes):
    made = []
    runtimes._make = lambda level: made.append(level.libraries) or Made(level, ())
    scipy = load_library("scipy").digest
    runtimes.jail(level_with(scipy), science, gate.root.trust, None)
    runtimes.jail(level_with(), FLAVOR, gate.root.trust, None)
    assert made == [(scipy,), ()]
