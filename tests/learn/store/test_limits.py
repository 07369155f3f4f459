"""What a shard's process takes from its surroundings, and answers that do not go through."""

import os
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from stoilo.core.errors import StoiloError, TrustError, UnreachableError, UsageError
from stoilo.learn.store import process, protocol, values
from stoilo.learn.store.client import child_environment
from stoilo.learn.store.protocol import Change, Push
from stoilo.learn.store.remote import RemoteShard
from stoilo.learn.store.shards import LocalShard


def test_module_in_the_working_folder_is_not_run(tmp_path, monkeypatch):
    (tmp_path / "msgspec.py").write_text("open('RAN', 'w')\nraise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    shard = RemoteShard(tmp_path / "shard0.db")
    assert shard.list_keys() == ()
    assert not (tmp_path / "RAN").exists()
    shard.close()


def test_process_inherits_nothing_that_it_does_not_need(tmp_path, monkeypatch):
    monkeypatch.setenv("SOMEBODYS_TOKEN", "secret")
    shard = RemoteShard(tmp_path / "shard0.db")
    assert shard.list_keys() == ()
    inherited = Path(f"/proc/{shard.process.pid}/environ").read_bytes()
    assert b"secret" not in inherited
    shard.close()


def test_only_absolute_folders_stay_in_the_path_of_modules():
    path = os.pathsep.join(["", ".", "/opt/mine", "mine"])
    given = {"PYTHONPATH": path, "PYTHONSTARTUP": "/x", "OMP_NUM_THREADS": "1"}
    wanted = {"PYTHONPATH": "/opt/mine", "OMP_NUM_THREADS": "1"}
    assert child_environment(given) == wanted
    assert child_environment({"PYTHONPATH": ":."}) == {}


@pytest.mark.parametrize("value", [np.zeros(100), {"name" * 30: 1}])
def test_value_that_fits_no_frame_is_not_kept(monkeypatch, value):
    monkeypatch.setattr(values, "MOST_BYTES", 100)
    shard = LocalShard()
    with pytest.raises(UsageError, match="STO-T068"):
        shard.create({"a": value})
    assert shard.list_keys() == ()


def test_value_that_grows_beyond_a_frame_stays_as_it_was(monkeypatch):
    shard = LocalShard()
    shard.create({"a": {}})
    monkeypatch.setattr(values, "MOST_BYTES", 100)
    with pytest.raises(UsageError, match="STO-T068"):
        shard.apply(Push("r/w0", 0, [Change("a", "count", {"name" * 30: 1})]))
    assert shard.read(["a"])["a"].value == {}


def test_largest_value_leaves_room_for_what_goes_with_it():
    assert values.MOST_BYTES + (1 << 20) <= protocol.MOST_BYTES


def answers(requests, monkeypatch):
    """Return what a process whose frames hold 150 bytes says."""
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    with ours, theirs:
        thread = threading.Thread(
            target=process.serve, args=(theirs, lambda _: LocalShard()), daemon=True
        )
        monkeypatch.setattr(protocol, "MOST_BYTES", 150)
        thread.start()
        for request in requests:
            protocol.send_frame(ours, request)
            yield protocol.receive_response(ours)
        ours.shutdown(socket.SHUT_WR)
        thread.join()


def test_answer_that_fits_no_frame_is_refused_and_the_process_goes_on(monkeypatch):
    making = [protocol.CreateCells({name * 40: 1}) for name in ("a", "b", "c", "d")]
    first = protocol.OpenShard("unused", [])
    after = [protocol.ListKeys(), protocol.ReadCells(["a" * 40])]
    *_, listed, cells = answers([first, *making, *after], monkeypatch)
    assert (listed.family, listed.code) == ("trust", "STO-T038")
    assert isinstance(cells, protocol.Answer)


def test_forgetting_in_a_file_that_cannot_be_written_is_refused_by_its_code(tmp_path):
    shard = LocalShard(tmp_path / "s.db")
    shard.create({"a": 1})
    shard._file.execute("PRAGMA query_only = ON")
    with pytest.raises(StoiloError) as refusal:
        shard.drop(["a"])
    assert isinstance(refusal.value, TrustError | UnreachableError)
    assert shard.list_keys() == ("a",)
    shard.close()
