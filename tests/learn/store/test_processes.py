"""Shards as processes: killed at any moment, frozen, orphaned, talked nonsense to."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import StoiloError, TrustError, UnreachableError, UsageError
from stoilo.learn.store import process, protocol
from stoilo.learn.store.functions import Probe, register
from stoilo.learn.store.process import load_function
from stoilo.learn.store.protocol import Cell, Change, Push
from stoilo.learn.store.remote import RemoteShard
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.values import decode, encode

PROGRAMS = Path(__file__).parent / "programs"
KEYS = ["a", "b", "c"]
LIMIT_S = 240


def push_of(sequence, change=1, function="add", keys=KEYS):
    return Push("r/w0", sequence, [Change(key, function, change) for key in keys])


def values(keeper):
    return {key: cell.value for key, cell in keeper.read(KEYS).items()}


@pytest.fixture
def shard(tmp_path):
    found = RemoteShard(tmp_path / "shard0.db")
    found.create(dict.fromkeys(KEYS, 0))
    yield found
    found.close()


def test_process_keeps_arrays_numbers_and_counts(tmp_path):
    server = ParameterServer.open(tmp_path, 2, processes=True)
    kept = {"array": np.arange(6.0).reshape(2, 3), "number": 2.5, "counts": {"x": 1}}
    server.create(kept)
    assert server.list_keys() == tuple(sorted(kept))
    cells = server.read(kept)
    assert np.array_equal(cells["array"].value, kept["array"])
    assert (cells["number"].value, cells["counts"].value) == (2.5, {"x": 1})
    server.close()


def test_killed_shard_comes_back_with_all_that_was_acknowledged(shard):
    for sequence in range(4):
        shard.apply(push_of(sequence))
        os.kill(shard.process.pid, signal.SIGKILL)
    assert values(shard) == dict.fromkeys(KEYS, 4)
    assert shard.process.started == 5


def test_repeated_push_counts_once_over_a_kill(shard):
    assert shard.apply(push_of(0)) == 3
    os.kill(shard.process.pid, signal.SIGKILL)
    assert shard.apply(push_of(0)) == 0


def test_closed_shard_leaves_no_process(shard):
    pid = shard.process.pid
    shard.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(UsageError, match="STO-T037"):
        shard.list_keys()


def test_key_that_is_asked_for_twice_is_given_once(shard):
    assert list(shard.read(["b", "a", "b"])) == ["b", "a"]


@pytest.mark.parametrize("given", [[], ["b"], ["a", "b", "c", "d"]])
def test_shard_that_gives_other_cells_than_asked_for_is_not_believed(shard, given):
    body = encode(dict.fromkeys(given, Cell(0)))
    shard.process.exchange = lambda _request: protocol.Answer(body)
    with pytest.raises(TrustError, match="STO-T038"):
        shard.read(KEYS)


def test_frozen_shard_is_killed_and_started_again(tmp_path):
    shard = RemoteShard(tmp_path / "shard0.db")
    shard.create(dict.fromkeys(KEYS, 0))
    shard.process._connection.settimeout(
        0.5
    )  # the next process has the whole limit again
    os.kill(shard.process.pid, signal.SIGSTOP)
    assert shard.apply(push_of(0)) == 3
    assert shard.process.started == 2
    shard.close()


def test_program_that_never_serves_is_given_up(tmp_path):
    shard = RemoteShard(tmp_path / "s.db", program=["/bin/false"], lives=3)
    with pytest.raises(UnreachableError, match="STO-T037"):
        shard.list_keys()
    assert shard.process.started == 3
    shard.close()


def test_refusals_come_over_as_what_they_are(shard):
    with pytest.raises(UsageError, match="STO-T074"):
        shard.read(["unknown"])
    with pytest.raises(UsageError, match="STO-T074"):
        shard.apply(push_of(0, function="unknown"))
    with pytest.raises(UsageError, match="STO-T074"):
        shard.apply(push_of(0, change={"a": 1}))
    assert shard.process.started == 1


@pytest.mark.usefixtures("shard")
def test_file_that_another_server_has_open_is_refused(tmp_path):
    other = RemoteShard(tmp_path / "shard0.db", takeover_s=0.2)
    with pytest.raises(UsageError, match="STO-T023"):
        other.list_keys()
    other.close()


def test_cells_that_do_not_fit_a_frame_come_in_several(tmp_path, monkeypatch):
    monkeypatch.setattr(protocol, "BATCH_BYTES", 200)
    large = {f"k{index}": np.full(6, float(index)) for index in range(7)}
    with serving() as connection:
        for request in (
            protocol.OpenShard(str(tmp_path / "s.db"), []),
            protocol.CreateCells(large),
            protocol.ReadCells([*large]),
        ):
            protocol.send_frame(connection, request)
            answer = protocol.receive_response(connection)
    assert [*decode(answer.body, dict[str, Cell])] == ["k0", "k1"]


def test_more_cells_than_a_frame_holds_are_read_one_frame_after_the_other(shard):
    large = {f"k{index}": np.full(1 << 20, float(index)) for index in range(6)}
    shard.create(large)
    found = shard.read(large)
    assert all(np.array_equal(found[key].value, large[key]) for key in large)


def smallest(value, change):
    return np.minimum(value, change)


NUMBERS = Probe(1.0, 2.0, 3.0)


def test_registered_function_travels_as_source_and_runs_in_the_process(tmp_path):
    server = ParameterServer.open(
        tmp_path, 2, [register("smallest", smallest, NUMBERS)], processes=True
    )
    server.create({"a": np.array([1.0, 5.0]), "b": 7.0, "c": 9.0})
    server.push(push_of(0, change=3.0, function="smallest"))
    cells = server.read(KEYS)
    assert cells["a"].value.tolist() == [1.0, 3.0]
    assert (cells["b"].value, cells["c"].value) == (3.0, 3.0)
    server.close()


def test_source_that_is_not_the_registered_one_is_refused():
    found = register("smallest", smallest, NUMBERS)
    with pytest.raises(UsageError, match="STO-T012"):
        load_function("smallest", found.source + "\n", found.entry, found.digest)


class serving:  # noqa: N801 - a context manager, read as a verb
    """The serving loop in a thread of this process, on one end of a socket pair."""

    def __enter__(self):
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(60)

        def work():
            with theirs:
                try:
                    process.serve(theirs)
                except (OSError, TrustError):
                    pass

        self.thread = threading.Thread(target=work)
        self.thread.start()
        return self.ours

    def __exit__(self, *_):
        self.ours.close()
        self.thread.join(60)
        assert not self.thread.is_alive()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_an_error_of_ours(body):
    one, other = socket.socketpair()
    with one, other:
        one.sendall(len(body).to_bytes(8, "big") + body)
        one.close()
        try:
            protocol.receive_request(other)
        except StoiloError as error:
            assert error.code == "STO-T038"


def test_length_beyond_the_bound_is_refused_before_anything_is_read():
    one, other = socket.socketpair()
    one.sendall((protocol.MOST_BYTES + 1).to_bytes(8, "big"))
    with one, other, pytest.raises(TrustError, match="STO-T038"):
        protocol.receive_response(other)


@pytest.mark.parametrize(
    "request_",
    [
        protocol.ListKeys(),
        protocol.ApplyPush(Push("w", 0, [Change("a", "add", "text")])),
        protocol.CreateCells({"a": "text"}),
        protocol.OpenShard("/nowhere/s.db", []),
    ],
)
def test_request_out_of_place_or_with_a_bad_value_is_refused_and_the_next_is_served(
    request_,
):
    with serving() as connection:
        for _ in range(2):
            protocol.send_frame(connection, request_)
            answer = protocol.receive_response(connection)
            assert isinstance(answer, protocol.Refused)


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_running(pid):
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_shards_of_a_killed_server_end_and_the_next_server_takes_over(tmp_path):
    command = [sys.executable, str(PROGRAMS / "holding.py"), str(tmp_path / "s")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        pids = [int(word) for word in holder.stdout.readline().split()]
        holder.kill()
    server = ParameterServer.open(tmp_path / "s", 2, processes=True)
    assert values(server) == dict.fromkeys(KEYS, 1)
    wait_until(lambda: not any(is_running(pid) for pid in pids))
    server.close()


def failing(folder, kind, first, most):
    """A shard that dies before statement `first`, then one later, `most` times."""
    folder.mkdir()
    program = [sys.executable, str(PROGRAMS / "failing.py"), kind]
    program += [str(first), str(most), str(folder / "lives")]
    return RemoteShard(folder / "s.db", lives=most + 2, program=program)


def push_through(folder, kind, first, most, pushes=3):
    shard, seen = failing(folder, kind, first, most), []
    try:
        shard.create(dict.fromkeys(KEYS, 0))
        for sequence in range(pushes):
            shard.apply(push_of(sequence))
            seen.append(values(shard))
        os.kill(shard.process.pid, signal.SIGKILL)  # and once more at the end
        seen.append(values(shard))
        assert shard.process.started == most + 2, "not every kill was used"
    finally:
        shard.close()
    return seen


@pytest.mark.slow
def test_killed_before_each_statement_every_push_counts_once(tmp_path):
    seen = push_through(tmp_path / "s", "careful", first=1, most=18)
    assert seen == [dict.fromkeys(KEYS, count) for count in (1, 2, 3, 3)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "most"), [("careless", 7), ("hasty", 0)])
def test_control_careless_and_hasty_shards_count_wrongly(kind, most, tmp_path):
    seen = push_through(tmp_path / "s", kind, first=11, most=most)
    assert seen[-1] != dict.fromkeys(KEYS, 3)


def train(folder, mode, kill_after=None):
    """Run the training; kill -9 its process after so many updates; return its result."""
    command = [sys.executable, str(PROGRAMS / "training.py"), str(folder), mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        for _ in range(kill_after or 0):
            assert trainer.stdout.readline() == "ok\n"
        if kill_after is not None:
            trainer.kill()
        lines = trainer.stdout.read().splitlines()
    return None if kill_after is not None else json.loads(lines[-1])


@pytest.mark.slow
def test_trainer_killed_in_mid_epoch_ends_with_the_same_bits(tmp_path):
    whole = train(tmp_path / "whole", "ipm")
    for updates in (3, 6):
        train(tmp_path / "killed", "ipm", updates)
    assert train(tmp_path / "killed", "ipm") == whole
