"""Copies of each key on several shards: a lost file loses nothing that was acknowledged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.learn.store.server import ParameterServer, Ring
from stoilo.learn.store.shards import Change, LocalShard, Push

KEYS = [f"k{index}" for index in range(12)]


def push_of(sequence, keys=KEYS):
    return Push("r/w0", sequence, [Change(key, "add", 1) for key in keys])


def opened(folder, count, copies, pushes=0):
    server = ParameterServer.open(folder, count, copies=copies)
    server.create(dict.fromkeys(KEYS, 0))
    for sequence in range(pushes):
        server.push(push_of(sequence))
    return server


def values(server):
    return {key: cell.value for key, cell in server.read(KEYS).items()}


@given(st.text(), st.integers(1, 6), st.integers(1, 6))
def test_owners_are_different_and_begin_with_the_owner(key, shards, copies):
    ring = Ring(tuple(f"shard{index}" for index in range(shards)))
    owners = ring.owners(key, copies)
    assert owners[0] == ring.owner(key)
    assert len(owners) == len(set(owners)) == min(shards, copies)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_lost_file_of_a_shard_loses_nothing_with_two_copies(lost, tmp_path):
    opened(tmp_path, 3, 2, pushes=3).close()
    (tmp_path / f"shard{lost}.db").unlink()
    server = opened(tmp_path, 3, 2)
    assert values(server) == dict.fromkeys(KEYS, 3)
    assert server.push(push_of(2)) == 0, "what each push has seen came along"
    server.close()


def test_control_with_one_copy_a_lost_file_loses_its_keys(tmp_path):
    opened(tmp_path, 3, 1, pushes=3).close()
    (tmp_path / "shard1.db").unlink()
    server = opened(tmp_path, 3, 1)
    assert sorted(set(values(server).values())) == [0, 3]
    server.close()


@pytest.mark.parametrize("shapes", [[(3, 2), (4, 2), (2, 2)], [(3, 1), (3, 3), (2, 1)]])
def test_changed_numbers_of_shards_and_copies_move_what_is_there(shapes, tmp_path):
    for number, (count, copies) in enumerate(shapes):
        server = opened(tmp_path, count, copies, pushes=number + 1)
        assert values(server) == dict.fromkeys(KEYS, number + 1)
        kept = sum(len(shard.list_keys()) for shard in server.shards.values())
        assert kept == copies * len(KEYS)
        server.close()


def test_push_that_reached_one_copy_only_is_on_both_afterwards_and_counts_once():
    shards = {name: LocalShard() for name in ("a", "b")}
    server = ParameterServer(shards, copies=2)
    server.create(dict.fromkeys(KEYS, 0))
    shards["b"].apply(push_of(0))  # and the server was killed
    again = ParameterServer(shards, copies=2)
    assert values(again) == dict.fromkeys(KEYS, 1)
    assert shards["a"].read(KEYS) == shards["b"].read(KEYS)
    assert again.push(push_of(0)) == 0


@pytest.mark.parametrize("copies", [0, 3])
def test_more_copies_than_shards_are_refused(copies):
    with pytest.raises(UsageError, match="STO-T067"):
        ParameterServer({"a": LocalShard(), "b": LocalShard()}, copies=copies)
