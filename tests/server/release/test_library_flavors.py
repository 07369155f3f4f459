"""Which flavor a task with libraries gets, and which libraries its admission names."""

import dataclasses

import msgspec
import pytest

from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError, PolicyRefusal
from stoilo.core.libraries import load_library, parse_library
from stoilo.flavors.manifest import (
    FlavorManifest,
    held_libraries,
    is_described,
    is_installed,
)
from stoilo.server.release import flavors
from stoilo.server.release.flavors import (
    check_validators,
    choose_flavor,
    held_names,
    named_libraries,
)
from tests.executor.verifier.test_libraries import FILES, WIDE, A, B
from tests.server.release.test_flavors import part
from tests.support.gate import GateBench

SCIPY = load_library("scipy")


def flavor(name, *libraries, level="numeric", size=9):
    made = part(name, level=level)
    archive = msgspec.structs.replace(made.archive, size=size)
    digests = tuple(one.digest for one in libraries)
    return msgspec.structs.replace(made, archive=archive, libraries=digests)


@pytest.fixture(scope="module")
def trust(tmp_path_factory):
    return GateBench(tmp_path_factory.mktemp("root")).root.trust


@pytest.fixture
def release(trust, monkeypatch):
    """Return a release of flavors, on a server that ships the libraries aa, bb and cc."""
    known = (A.digest, B.digest, WIDE.digest)
    monkeypatch.setattr(flavors, "library_digests", lambda: known)

    def made(*parts, **changes):
        changes = {"libraries": FILES} | changes
        return dataclasses.replace(trust, parts=parts, **changes)

    return made


NUMERIC, ONE, BOTH = flavor("numeric"), flavor("one", A), flavor("both", A, B)
ALL = flavor("all", A, B, WIDE, level="tensor")


@pytest.mark.parametrize(
    ("needed", "level", "expected"),
    [
        ((), "numeric", NUMERIC),
        (("aa",), "numeric", ONE),
        (("bb",), "numeric", BOTH),
        (("aa", "bb"), "numeric", BOTH),
        (("aa",), "tensor", ALL),
        (("cc",), "tensor", ALL),
    ],
)
def test_default_is_the_smallest_that_holds_all(release, needed, level, expected):
    trust = release(ALL, BOTH, ONE, NUMERIC)
    assert choose_flavor("", level, needed, trust) == expected.flavor


def test_of_flavors_with_as_many_libraries_the_smaller_archive_is_taken(release):
    trust = release(flavor("large", A, size=10), ONE)
    assert choose_flavor("", "numeric", ("aa",), trust) == ONE.flavor


def test_named_flavor_that_lacks_a_library_says_who_has_it(release):
    with pytest.raises(PolicyRefusal, match="one lacks bb") as refusal:
        choose_flavor("one", "numeric", ("aa", "bb"), release(ONE, BOTH))
    assert refusal.value.code == "STO-K097"
    assert "both (level numeric, aa, bb)" in (refusal.value.hint or "")
    assert "one" not in (refusal.value.hint or "").replace("none", "")


def test_libraries_that_no_flavor_holds_together_are_refused(release):
    with pytest.raises(PolicyRefusal, match="numeric with aa and bb"):
        choose_flavor("", "numeric", ("aa", "bb"), release(ONE, flavor("two", B)))


@pytest.mark.parametrize(
    "gone",
    [
        {"withdrawn_flavors": frozenset({ONE.flavor})},
        {"denied": frozenset({ONE.flavor})},
        {"denied": frozenset({A.digest})},
    ],
)
def test_flavor_with_something_withdrawn_is_not_taken(release, gone):
    trust = release(ONE, NUMERIC, **gone)
    assert held_names(trust) == ()
    for wish in ("", "one"):
        with pytest.raises(PolicyRefusal, match="STO-K097"):
            choose_flavor(wish, "numeric", ("aa",), trust)


def test_gate_is_told_of_what_flavors_in_force_hold(release):
    assert held_names(release(NUMERIC)) == ()
    assert held_names(release(ONE, ALL)) == ("aa", "bb", "cc")


def test_library_of_a_version_that_the_server_lacks_is_not_offered(
    release, monkeypatch
):
    monkeypatch.setattr(flavors, "library_digests", lambda: (B.digest,))
    assert held_names(release(BOTH)) == ("bb",)


def test_flavor_whose_library_has_no_file_is_not_offered(release):
    assert held_names(release(ONE, libraries={})) == ()


def test_admission_names_what_the_level_may_use_of_the_flavor(release):
    trust = release(ALL)
    assert named_libraries(trust).get((ALL.flavor, "numeric"), ()) == (
        A.digest,
        B.digest,
    )
    assert named_libraries(trust).get((ALL.flavor, "tensor"), ()) == (
        A.digest,
        B.digest,
        WIDE.digest,
    )
    assert named_libraries(trust).get((ALL.flavor, "pure"), ()) == ()
    assert named_libraries(trust).get((content_digest(b"gone"), "tensor"), ()) == ()


def test_installed_flavor_counts_where_its_libraries_are_installed(trust, monkeypatch):
    science = FlavorManifest(
        "science", (), ("numpy", "scipy"), "3.11", "a" * 64, "b" * 32
    )
    monkeypatch.setattr(flavors, "shipped_flavors", lambda: (science,))
    monkeypatch.setattr(flavors, "is_installed", lambda _: True)
    assert held_names(trust) == ("scipy",)
    assert choose_flavor("", "numeric", ("scipy",), trust) == science.digest
    assert named_libraries(trust).get((science.digest, "numeric"), ()) == (
        SCIPY.digest,
    )
    monkeypatch.setattr(flavors, "is_installed", lambda _: False)
    assert held_names(trust) == ()
    check_validators(b"", ("scipy",))
    with pytest.raises(PolicyRefusal, match="STO-K097") as refusal:
        check_validators(b"def check(a): ...", ("scipy",))
    assert f"pip install 'scipy{SCIPY.versions}'" in refusal.value.hint


@pytest.mark.parametrize(
    ("modules", "level"),
    [
        ((), "pure"),
        (("numpy", "scipy"), "numeric"),
        (("numpy", "torch", "scipy"), "tensor"),
    ],
)
def test_shipped_flavor_is_made_for_the_narrowest_level_that_may_use_it(modules, level):
    made = FlavorManifest("x", (), modules, "3.11", "a" * 64, "b" * 32)
    assert flavors._shipped(made).level == level


def test_flavor_holds_the_described_ones_of_its_modules():
    made = FlavorManifest(
        "x", (), ("zzz", "scipy", "numpy"), "3.11", "a" * 64, "b" * 32
    )
    assert held_libraries(made) == (SCIPY,)


@pytest.mark.parametrize(
    ("versions", "version", "described"),
    [
        (">=1.9,<1.10", "1.9.0", True),
        (">=1.9,<1.10", "1.10.0", False),
        (">=1.9, <1.10", "1.9.9+cpu", True),
        (">=1.9,<1.10", "1.9.0rc1", False),
        ("==2.13", "2.13.0", True),
        ("!=2.0", "2.0", False),
        (">1,<=3", "3", True),
    ],
)
def test_described_versions(versions, version, described):
    assert (
        is_described(msgspec.structs.replace(A, versions=versions), version)
        is described
    )


@pytest.mark.parametrize("versions", ["", "~=1.0", ">=1.x", "1.0"])
def test_versions_that_cannot_be_read_are_an_error(versions):
    with pytest.raises(InternalError, match="STO-P001"):
        is_described(msgspec.structs.replace(A, versions=versions), "1.0")


def test_library_that_is_not_there_is_not_installed():
    gone = msgspec.structs.replace(A, distribution="no-such-distribution")
    assert not is_installed(gone)
    assert is_installed(
        msgspec.structs.replace(A, distribution="msgspec", versions=">0")
    )
    assert parse_library(FILES[A.digest]) == A
