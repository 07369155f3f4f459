"""Members: whose they are, what ends their workers, and the command that starts them."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from stoilo import learn
from stoilo.cli.learn.parts import cell as command
from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import to_node
from stoilo.core.digests import content_digest
from stoilo.core.errors import UnreachableError, UsageError
from stoilo.learn.cells import worker
from stoilo.learn.cells.group import Group
from stoilo.learn.cells.member import CellMember
from stoilo.learn.cells.protocol import write_layout
from stoilo.learn.coordinator.gang import Cancel, CanCommit, DoCommit, PreCommit
from stoilo.learn.coordinator.meeting import Folder
from tests.support.cells import MEMBER, PLAIN, Fated, Leading
from tests.support.networkshard import NetworkShard

LIMITS = learn.CellLimits(order_s=5.0, lease_s=1.5, form_s=20.0)


@pytest.fixture
def member(tmp_path):
    found = CellMember(tmp_path, "127.0.0.1:0", program=PLAIN)
    yield found
    found.close()


def test_inputs_are_read_where_they_lie_and_written_to_nobody(tmp_path):
    data = skeleton.encode(to_node({"w": np.arange(6.0).reshape(2, 3)}))
    digest = content_digest(data)
    (tmp_path / digest).write_bytes(data)
    reader = worker.Worker(tmp_path, 0, [])
    one, other = (
        worker._look_at(skeleton.decode(reader._read(digest))["w"]) for _ in range(2)
    )
    one += 1
    assert other.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (tmp_path / digest).read_bytes() == data
    assert type(one.base.base) is memoryview  # which guards give to nobody


def begin(member, group="g", lease_s=60.0):
    """Start a group of this member alone."""
    ready = [member.place.shard]
    for message in (CanCommit(group, lease_s), PreCommit(group, [])):
        member.hear(message)
    return member.hear(DoCommit(group, ready)).state


def is_alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False


def wait_until(holds, limit_s=10.0):
    end = time.monotonic() + limit_s
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


def test_worker_lives_as_long_as_its_group_and_the_next_group_has_another(member):
    assert begin(member) == "running"
    first = member.pid
    assert is_alive(first)
    member.hear(Cancel("g"))
    assert (member.pid, is_alive(first)) == (0, False)
    begin(member, "h")
    assert member.pid not in {0, first}


def test_worker_ends_with_the_lease_of_a_silent_trainer(member):
    begin(member, lease_s=0.3)
    pid = member.pid
    assert is_alive(pid)
    assert wait_until(lambda: not member.pid)
    assert not is_alive(pid)


def test_busy_worker_of_a_killed_member_ends_at_once(tmp_path):
    (tmp_path / "memory").mkdir()
    with NetworkShard(tmp_path / "member", MEMBER) as member:
        layout = Fated(str(tmp_path / "memory"), "sleep", "open", 0)
        trainer = subprocess.Popen(
            [sys.executable, "-c", OPENING, str(member.folder), layout.memory]
        )
        assert wait_until((tmp_path / "memory" / "open").exists, 30.0)
        listed = Path(f"/proc/{member.process.pid}/task").glob("*/children")
        pids = [pid for file in listed for pid in file.read_text().split()]
        assert pids
        assert all(map(is_alive, pids))
        member.kill()
        assert wait_until(lambda: not any(map(is_alive, pids)))
    trainer.kill()
    trainer.wait()


OPENING = """
import sys
from pathlib import Path
from stoilo.learn.cells.group import CellLimits, Group
from stoilo.learn.cells.protocol import write_layout
from stoilo.learn.store.place import read_place
from tests.support.cells import Fated

layout = Fated(sys.argv[2], "sleep", "open", 0)
place = read_place(Path(sys.argv[1]) / "connection.json")
Group([place], write_layout(layout), CellLimits(form_s=60.0))
"""


def test_member_is_in_the_cell_of_its_peers_only(tmp_path):
    program = (*MEMBER, "127.0.0.1:1,127.0.0.1:2")
    with (
        NetworkShard(tmp_path, program) as one,
        pytest.raises(UsageError, match=r"started for the cell 127\.0\.0\.1:1"),
    ):
        Group([one.place], write_layout(Leading()), LIMITS)


def test_staged_inputs_that_were_unused_for_longest_make_room(tmp_path):
    folder = Folder(tmp_path, 25)
    parts = [bytes([n]) * 10 for n in range(3)]
    names = [content_digest(one) for one in parts]
    for name, data in zip(names[:2], parts, strict=False):
        folder.put(name, data)
        time.sleep(0.01)
    assert names[0] in folder  # is used again
    folder.put(names[2], parts[2])
    assert [one in folder for one in names] == [True, False, True]
    assert f"../{tmp_path.name}/{names[0]}" not in folder


def run_command(*words):
    return CliRunner().invoke(command, words).exception


@pytest.mark.parametrize(
    "words",
    [
        ("--listen", "10.0.0.7:57096"),
        ("--listen", "0.0.0.0:57096"),
        ("--listen", "127.0.0.1:0", "--rank", "0", "--peers", "127.0.0.1:1,lab2:1"),
    ],
)
def test_links_beyond_this_machine_need_a_word(tmp_path, words):
    error = run_command("--data", str(tmp_path), *words)
    assert isinstance(error, UsageError)
    assert error.code == "STO-R090"
    assert "--private-network" in error.hint


@pytest.mark.parametrize(
    "words", [("--rank", "1", "--peers", "127.0.0.1:1"), ("--peers", "127.0.0.1:1"), ()]
)
def test_rank_without_its_peer_is_refused(tmp_path, words):
    error = run_command("--data", str(tmp_path), *words)
    assert isinstance(error, UsageError)
    assert error.code == "STO-R090"


def test_started_command_is_a_member_that_knows_our_layouts_only(tmp_path):
    program = (sys.executable, "-m", "stoilo", "learn", "cell")
    with NetworkShard(tmp_path, program) as one:
        assert one.line["connection"] == str(tmp_path / "connection.json")
        with pytest.raises(UsageError, match="no layout of cells: 'Leading'"):
            Group([one.place], write_layout(Leading()), LIMITS)
    with pytest.raises(UnreachableError):
        Group([one.place], write_layout(Leading()), LIMITS)
