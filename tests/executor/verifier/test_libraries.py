"""Libraries of an admission: those that the release accepts, and exactly the flavor's."""

import dataclasses

import msgspec
import pytest

from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError
from stoilo.core.levels import load_levels
from stoilo.core.libraries import add_libraries, parse_library
from stoilo.core.statement import parse_statement
from stoilo.executor.verifier.targets import ArchiveFile, PartFile
from tests.support.gate import FLAVOR, host_state, verify_bundle

HOST = host_state(max_level="numeric", platform="x86_64-linux")


def file_of(name: str, level: str = "numeric") -> bytes:
    """Return a library's file that opens one name."""
    head = f'name = "{name}"\ndistribution = "{name}"\nversions = ">=1"\n'
    body = f'level = "{level}"\nsummary = "Arrays."\n'
    return f"{head}{body}[modules.{name}]\nnames = ['f']\n".encode()


A, B, WIDE = (
    parse_library(file_of(*one)) for one in (("aa",), ("bb",), ("cc", "tensor"))
)
FILES = {A.digest: file_of("aa"), B.digest: file_of("bb")}
FILES[WIDE.digest] = file_of("cc", "tensor")
NEWER_A = parse_library(file_of("aa") + b"# newer\n")
FILES[NEWER_A.digest] = file_of("aa") + b"# newer\n"


def part(*libraries, platform="x86_64-linux"):
    archive = ArchiveFile("a.tar.xz", 1, "0" * 64)
    made = PartFile("stoilo-part/1", "science", platform, "1", 1, archive)
    return msgspec.structs.replace(made, flavor=FLAVOR, libraries=libraries)


def verify(gate, *libraries, parts=(), denied=(), level=1, **changes):
    """Return the level at which a task with these libraries runs."""
    trust = dataclasses.replace(
        gate.root.trust, libraries=FILES, parts=parts, denied=frozenset(denied)
    )
    told = gate.installed.levels[level]
    statement = gate.statement(
        level=told.name,
        level_digest=told.digest,
        libraries=libraries,
        critical=("libraries",) if libraries else (),
        **changes,
    )
    bundle = gate.bundle(gate.admit(statement), app_level=told.name)
    return verify_bundle(bundle, trust, HOST, gate.now).level


def refused(gate, *libraries, **more):
    with pytest.raises(StoiloError) as caught:
        verify(gate, *libraries, **more)
    return caught.value.code


def test_accepted_libraries_are_added_to_the_level(gate):
    level = verify(gate, A.digest, B.digest)
    assert level.libraries == (A.digest, B.digest)
    assert {"aa", "bb"} <= set(level.modules)
    assert level.digest == gate.installed.levels[1].digest


def test_task_without_libraries_runs_at_the_bare_level(gate):
    assert verify(gate) == gate.installed.levels[1]


@pytest.mark.parametrize(
    "named",
    [
        (content_digest(b"never signed"),),
        (B.digest, A.digest),  # not in the order of names
        (A.digest, A.digest),
        tuple(sorted((A.digest, NEWER_A.digest))),  # two versions
        (WIDE.digest,),  # needs a wider level
    ],
)
def test_libraries_that_the_release_does_not_let_stand_together(gate, named):
    assert refused(gate, *named) == "STO-A032"


def test_denied_library_withdraws_the_task(gate):
    assert refused(gate, A.digest, denied=[A.digest]) == "STO-A046"
    assert verify(gate, B.digest, denied=[A.digest])


@pytest.mark.parametrize("named", [(), (A.digest,), (A.digest, NEWER_A.digest)])
def test_other_libraries_than_the_flavors_are_refused(gate, named):
    parts = (part(A.digest, B.digest),)
    assert refused(gate, *named, parts=parts) == "STO-A032"
    assert verify(gate, A.digest, B.digest, parts=parts)


def test_narrow_task_takes_of_a_wide_flavor_what_its_level_may_use(gate):
    parts = (part(A.digest, WIDE.digest),)
    assert verify(gate, A.digest, parts=parts).libraries == (A.digest,)
    assert verify(gate, parts=parts, level=0).libraries == ()
    assert refused(gate, A.digest, WIDE.digest, parts=parts) == "STO-A032"


def test_broken_library_in_a_signed_release_is_our_error(gate):
    digest = "b" * 64
    trust = dataclasses.replace(gate.root.trust, libraries={digest: b"name = 1"})
    with pytest.raises(StoiloError) as caught:
        trust.library(digest)
    assert caught.value.code == "STO-A032"


def test_nothing_is_parsed_for_a_task_without_libraries(gate, monkeypatch):
    def never(data: bytes) -> None:
        raise AssertionError(data)

    monkeypatch.setattr("stoilo.executor.verifier.targets.parse_library", never)
    assert verify(gate).libraries == ()


def test_verifier_that_knows_no_libraries_refuses_a_task_with_some(gate, monkeypatch):
    statement = gate.statement(libraries=(A.digest,), critical=("libraries",))
    payload = gate.admit(statement).payload
    assert parse_statement(payload).libraries == (A.digest,)
    monkeypatch.setattr("stoilo.core.statement.KNOWN_CRITICAL", frozenset())
    with pytest.raises(StoiloError) as caught:
        parse_statement(payload)
    assert caught.value.code == "STO-A032"


@pytest.mark.parametrize("name", ["os", "ctypes", "stoilo", "numpy", "torch"])
def test_library_never_opens_what_levels_speak_for(name):
    with pytest.raises(StoiloError) as caught:
        parse_library(file_of(name))
    assert caught.value.code == "STO-P001"


@pytest.mark.parametrize("table", ["members", "overrides", "writable"])
def test_library_never_opens_again_what_a_level_has_closed(table):
    level = next(one for one in reversed(load_levels()) if getattr(one, table))
    name, listed = next(iter(getattr(level, table).items()))
    wider = {name: (*listed, "tofile")}
    assert add_libraries(level, [msgspec.structs.replace(A, **{table: {name: listed}})])
    with pytest.raises(StoiloError, match=f"aa opens {name}"):
        add_libraries(level, [msgspec.structs.replace(A, **{table: wider})])
