"""Twenty flavors at once: unpacked where used, evicted by least use, never while held."""

import dataclasses
import os

import msgspec
import pytest

from stoilo.core.digests import content_digest
from stoilo.core.frozen_tree import platform_name
from stoilo.executor.verifier.execution import TreeRuntimes
from tests.executor.verifier.test_tree_runtimes import LEVEL, Made, part_of
from tests.support.frozen import FILES, make_tree

COUNT = 20
FLAVORS = [content_digest(b"flavor %d" % number) for number in range(COUNT)]


@pytest.fixture
def trees(tmp_path):
    """Return archives of twenty different trees of one size."""
    return [
        make_tree(tmp_path / f"t{number}", {**FILES, "_internal/n": b"%02d" % number})
        for number in range(COUNT)
    ]


@pytest.fixture
def host(tmp_path, gate, trees):
    """Return what runs tasks of flavor n in a process of its own, room for five trees."""
    home = tmp_path / "flavors"
    home.mkdir(mode=0o700)
    parts = tuple(
        msgspec.structs.replace(
            part_of(tree, platform_name()), part=f"f{number}", flavor=FLAVORS[number]
        )
        for number, tree in enumerate(trees)
    )
    trust = dataclasses.replace(gate.root.trust, parts=parts)
    taken = sum(trees[0].size + len(trees[0].manifest) for _ in range(5))

    def begin(number):
        runtimes = TreeRuntimes(home, platform_name(), taken, make=Made)
        assert len(runtimes.flavors(trust)) == COUNT
        runtimes.jail(LEVEL, FLAVORS[number], trust, trees[number].archive)
        os.utime(home / f"{trees[number].wanted.digest}.lock", (number, number))
        return runtimes

    def unpacked():
        there = {path.name for path in home.iterdir() if path.is_dir()}
        return [n for n, tree in enumerate(trees) if tree.wanted.digest in there]

    return begin, unpacked


def test_flavor_is_unpacked_only_where_it_is_used(host):
    begin, unpacked = host
    assert unpacked() == []
    begin(7).close()
    assert unpacked() == [7]


def test_least_used_flavors_go_when_the_cap_is_reached(host):
    begin, unpacked = host
    for number in range(COUNT):
        begin(number).close()
        assert len(unpacked()) <= 5
    assert unpacked() == [15, 16, 17, 18, 19]


def test_flavor_in_use_is_never_evicted(host):
    begin, unpacked = host
    held = begin(0)  # the one that was used least, all the time
    for number in range(1, COUNT):
        begin(number).close()
    assert unpacked() == [0, 16, 17, 18, 19]
    held.close()
    begin(5).close()
    assert 0 not in unpacked()
