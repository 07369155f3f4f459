"""Frozen runtimes: the release's bytes or nothing, hashed at each start, kept in use."""

import dataclasses

import pytest

from stoilo.core.errors import PolicyRefusal, TrustError
from stoilo.core.frozen_tree import platform_name
from stoilo.core.types import RunLimits
from stoilo.executor.verifier.execution import TreeRuntimes
from stoilo.executor.verifier.targets import ArchiveFile, PartFile
from stoilo.executor.verifier.trees import set_aside
from tests.support.frozen import FILES, make_tree
from tests.support.gate import FLAVOR, small_level

LEVEL = small_level("pure", 0)
CAP = 10**9


class Made:
    """A jail that was asked for: its command, and whether it was ended."""

    zygote_pid = 0

    def __init__(self, level, command):
        self.level, self.command, self.closed = level, command, False

    def run(self, request, limits, wall_s=None, *, watch=None):
        return (request, limits, wall_s, watch)

    def close(self):
        self.closed = True


def part_of(made, platform):
    archive = ArchiveFile(
        name="pure.tar.xz",
        size=made.wanted.archive_bytes,
        sha256=made.wanted.archive_digest,
    )
    return PartFile(
        format="stoilo-part/1",
        part="pure",
        platform=platform,
        version="1",
        serial=1,
        archive=archive,
        tree=made.wanted.digest,
        python="3.11",
        flavor=FLAVOR,
    )


@pytest.fixture
def made(tmp_path):
    return make_tree(tmp_path / "tree")


@pytest.fixture
def trust(gate, made):
    parts = (part_of(made, platform_name()), part_of(made, "other-linux"))
    return dataclasses.replace(gate.root.trust, parts=parts)


@pytest.fixture
def home(tmp_path):
    (tmp_path / "flavors").mkdir(mode=0o700)
    return tmp_path / "flavors"


@pytest.fixture
def runtimes(home):
    jails = []

    def make(level, command):
        jails.append(Made(level, command))
        return jails[-1]

    made = TreeRuntimes(home, platform_name(), CAP, make=make)
    made.made = jails
    yield made
    made.close()


def test_task_runs_in_the_unpacked_tree(runtimes, trust, made, home):
    jail = runtimes.jail(LEVEL, FLAVOR, trust, made.archive)
    program = home / made.wanted.digest / "stoilo-runtime"
    assert runtimes.made[0].command == (str(program),)
    assert jail.run(b"request", RunLimits())[0] == b"request"


def test_tree_in_use_is_kept_until_its_jail_ends(runtimes, trust, made, home):
    runtimes.jail(LEVEL, FLAVOR, trust, made.archive)
    assert not set_aside(home, made.wanted.digest)
    runtimes.close()
    assert runtimes.made[0].closed
    assert set_aside(home, made.wanted.digest)


def test_trees_beyond_a_cap_that_fell_go_when_the_work_ends(trust, made, home):
    before = TreeRuntimes(home, platform_name(), CAP, make=Made)
    before.jail(LEVEL, FLAVOR, trust, made.archive)
    before.close()
    TreeRuntimes(home, platform_name(), made.size - 1, make=Made).close()
    assert not (home / made.wanted.digest).exists()


def test_extra_file_refuses_and_the_next_start_unpacks_anew(
    runtimes, trust, made, home
):
    runtimes.jail(LEVEL, FLAVOR, trust, made.archive)
    runtimes.close()
    (home / made.wanted.digest / "_internal" / "libz.so.1").write_bytes(b"")
    again = TreeRuntimes(home, platform_name(), CAP, make=Made)
    with pytest.raises(TrustError) as caught:
        again.jail(LEVEL, FLAVOR, trust, made.archive)
    assert caught.value.code == "STO-F006"
    again.jail(LEVEL, FLAVOR, trust, made.archive)
    assert not (home / made.wanted.digest / "_internal" / "libz.so.1").exists()
    again.close()


def test_swapped_archive_starts_nothing(runtimes, trust, tmp_path):
    other = make_tree(tmp_path / "b", FILES | {"b": b"b"})
    with pytest.raises(TrustError) as caught:
        runtimes.jail(LEVEL, FLAVOR, trust, other.archive)
    assert caught.value.code == "STO-F006"
    assert runtimes.made == []


def test_flavor_of_another_platform_is_not_for_this_host(home, trust):
    runtimes = TreeRuntimes(home, "riscv64-linux", CAP, make=Made)
    assert runtimes.flavors(trust) == frozenset()
    with pytest.raises(PolicyRefusal) as caught:
        runtimes.jail(LEVEL, FLAVOR, trust, None)
    assert caught.value.code == "STO-X013"


def test_release_says_which_flavors_run_here(runtimes, trust):
    assert runtimes.flavors(trust) == frozenset({FLAVOR})
