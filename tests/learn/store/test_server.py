"""Shards behind one door: once each, all or nothing, the same after opening again."""

import sqlite3
import threading

import numpy as np
import pytest

from stoilo.core.errors import TrustError, UnreachableError, UsageError
from stoilo.learn.store.functions import Probe, register
from stoilo.learn.store.protocol import Change, Push
from stoilo.learn.store.server import ParameterServer, Ring
from stoilo.learn.store.shards import LocalShard

KEYS = [f"k{index}" for index in range(20)]
NUMBERS = Probe(1.0, 2.0, 3.0)


def capped(value, change):
    return min(value + change, 100)


def capped_lower(value, change):
    return min(value + change, 50)


def in_memory(count=3):
    server = ParameterServer({f"shard{index}": LocalShard() for index in range(count)})
    server.create(dict.fromkeys(KEYS, 0))
    return server


def push_of(source, sequence, change=1, keys=KEYS):
    return Push(source, sequence, [Change(key, "add", change) for key in keys])


def values(server):
    return {int(cell.value) for cell in server.read(KEYS).values()}


def test_push_counts_once_however_often_it_comes():
    server = in_memory()
    assert server.push(push_of("w", 0)) == 20
    assert server.push(push_of("w", 0)) == 0
    assert values(server) == {1}


def test_sources_do_not_hide_each_other():
    server = in_memory()
    for source in ("v", "w"):
        server.push(push_of(source, 0))
    assert values(server) == {2}


def test_push_that_was_cut_off_between_shards_is_completed_by_its_repetition():
    server = in_memory()
    part = Ring(("shard0", "shard1", "shard2")).group(KEYS)["shard1"]
    server.push(push_of("w", 0, keys=part))
    assert server.push(push_of("w", 0)) == 20 - len(part)
    assert values(server) == {1}


def test_number_of_shards_does_not_change_the_result():
    one, many = in_memory(1), in_memory(7)
    for server in (one, many):
        for sequence in range(3):
            server.push(push_of("w", sequence, sequence))
    assert [c.value for c in one.read(KEYS).values()] == [
        c.value for c in many.read(KEYS).values()
    ]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (Change("unknown", "add", 1), "STO-T074"),
        (Change("k1", "unknown", 1), "STO-T074"),
        (Change("k1", "max", np.ones(2)), "STO-T068"),
    ],
)
def test_bad_change_is_refused_and_the_rest_of_its_shard_stays(change, code):
    shard = LocalShard()
    shard.create(dict.fromkeys(KEYS, 0))
    with pytest.raises(UsageError, match=code):
        shard.apply(Push("w", 0, [Change("k0", "add", 1), change]))
    assert shard.read(["k0"])["k0"].version == 0


def test_key_twice_in_a_push_is_refused():
    with pytest.raises(UsageError, match="STO-T074"):
        push_of("w", 0, keys=["a", "a"])


def test_what_a_reader_holds_does_not_change():
    shard = LocalShard()
    shard.create({"w": np.zeros(2)})
    before = shard.read(["w"])["w"]
    shard.apply(Push("a", 0, [Change("w", "add", np.ones(2))]))
    assert before.value.tolist() == [0.0, 0.0]
    assert shard.read(["w"])["w"].value.tolist() == [1.0, 1.0]


def test_threads_lose_no_update():
    server = in_memory()

    def push_many(source):
        for sequence in range(50):
            server.push(push_of(source, sequence))

    threads = [threading.Thread(target=push_many, args=(f"w{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values(server) == {200}


def test_opened_again_everything_is_there_and_seen(tmp_path):
    server = ParameterServer.open(tmp_path, 2)
    server.create(dict.fromkeys(KEYS, 0))
    server.push(push_of("w", 0))
    server.close()
    again = ParameterServer.open(tmp_path, 2)
    again.create(dict.fromkeys(KEYS, 0))
    assert again.push(push_of("w", 0)) == 0
    assert values(again) == {1}
    again.close()


@pytest.mark.parametrize("counts", [(2, 5), (5, 2), (1, 4, 3)])
def test_changed_number_of_shards_moves_keys_with_what_they_have_seen(tmp_path, counts):
    for count in counts:
        server = ParameterServer.open(tmp_path, count)
        server.create(dict.fromkeys(KEYS, 0))
        server.push(push_of("w", 0))
        assert server.list_keys() == tuple(sorted(KEYS))
        assert values(server) == {1}
        server.close()


def test_file_that_another_server_has_open_is_refused(tmp_path):
    first = ParameterServer.open(tmp_path, 2)
    with pytest.raises(UsageError, match="STO-T023"):
        ParameterServer.open(tmp_path, 2)
    first.close()
    ParameterServer.open(tmp_path, 2).close()


def test_file_made_with_another_function_of_the_name_is_refused(tmp_path):
    path = tmp_path / "shard.db"
    LocalShard(path, [register("capped", capped, NUMBERS)]).close()
    LocalShard(path, [register("capped", capped, NUMBERS)]).close()
    for functions in ([], [register("capped", capped_lower, NUMBERS)]):
        with pytest.raises(UsageError, match="STO-T012"):
            LocalShard(path, functions)


def test_damaged_file_is_refused_by_name(tmp_path):
    path = tmp_path / "shard.db"
    shard = LocalShard(path)
    shard.create({"a": 1})
    shard.close()
    with sqlite3.connect(path) as file:
        file.execute("UPDATE cell SET body = x'93'")
    file.close()
    with pytest.raises(TrustError, match="STO-T011"):
        LocalShard(path)


def test_push_that_finds_the_disk_full_changes_nothing_and_may_come_again(tmp_path):
    shard = LocalShard(tmp_path / "shard.db")
    shard.create({"a": {}})
    many = {f"word{index}": 1 for index in range(9000)}
    push = Push("w", 0, [Change("a", "count", many)])
    shard._file.execute("PRAGMA max_page_count = 1")
    with pytest.raises(UnreachableError, match="STO-L002"):
        shard.apply(push)
    assert shard.read(["a"])["a"].version == 0
    shard._file.execute("PRAGMA max_page_count = 100000")
    assert shard.apply(push) == 1
    shard.close()
