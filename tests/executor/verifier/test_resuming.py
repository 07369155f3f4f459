"""The executor and what keeps its tasks' states: gone on from, or begun again."""

import time

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.digests import content_digest
from stoilo.executor.verifier.checkpoints import Checkpoint
from stoilo.executor.verifier.execution import VerifiedExecutor
from stoilo.executor.verifier.trust import installed_release
from stoilo.executor.verifier.workunit import HostState, Work, parse_result
from stoilo.executor.volunteer.installed import InstalledRuntimes
from stoilo.flavors.manifest import find_flavor
from stoilo.signer.release_pack import pack_release, read_release
from tests.support.gate import GateBench

STEPS = b"""
def task(kwargs, state=None):
    state = state or {"seen": []}
    for number in range(len(state["seen"]), 3):
        state["seen"].append(number)
        yield {**state, "fraction_done": number / 2}
    return state["seen"]
"""


class FakeKeeper:
    """What a session keeps, in memory.

    Args:
        kept: what the task goes on from.
    """

    def __init__(self, kept=None):
        self.kept = kept
        self.run = None
        self.heard = []
        self.forgotten = 0

    def begin(self, run):
        self.run = run
        return self.kept

    def watch(self, exchange):
        exchange.hear(self.heard.append)

    def forget(self):
        self.forgotten += 1


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    directory = tmp_path_factory.mktemp("gate") / "root"
    return GateBench(directory, now=int(time.time()), installed=installed_release())


@pytest.fixture
def execute(tmp_path, gate):
    """Return value and status of the task under a keeper."""

    def run(keeper, source=STEPS, items=0):
        arguments = skeleton.encode([{}] * items if items else {})
        statement = gate.statement(
            entry="task",
            task_module=content_digest(source),
            arguments=content_digest(arguments),
            blobs=(),
            flavor=find_flavor("pure").digest,
            map_items=items,
        )
        admitted = gate.admit(statement)
        files = {
            "admission": admitted.envelope,
            "proof": admitted.proof,
            "revocations": gate.revocations,
            "task_module": source,
            "arguments": arguments,
            "release": pack_release(read_release(gate.root.directory)),
        }
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)
        paths = tuple((name, tmp_path / name) for name in files)
        executor = VerifiedExecutor(
            gate.root.root_file.read_bytes(),
            tmp_path / "state",
            HostState(),
            clock=time.time,
            runtimes=InstalledRuntimes(),
            keeper=keeper,
        )
        try:
            data = executor.execute(Work("task-1_1_0", "task-1_1", "pure", paths))
        finally:
            executor.close()
        file = parse_result(data)
        run.header = file.header
        return skeleton.decode(file.frame)

    (tmp_path / "state").mkdir()
    return run


def value_of(frame):
    return skeleton.decode(frame["value"])


def test_first_state_is_told_at_once(execute):
    keeper = FakeKeeper()
    assert value_of(execute(keeper)) == [0, 1, 2]
    assert (keeper.heard[0].step, keeper.heard[0].fraction) == (1, 0.0)
    assert (execute.header.format, execute.header.resumed_at) == ("stoilo-result/1", 0)
    assert len(keeper.run.admission) == 64


def test_task_goes_on_from_what_was_kept(execute):
    state = skeleton.encode({"seen": [7, 8]})
    keeper = FakeKeeper(Checkpoint("", 2, state))
    assert value_of(execute(keeper)) == [7, 8, 2]
    assert keeper.heard[0].step == 3
    assert (execute.header.format, execute.header.resumed_at) == ("stoilo-result/2", 2)


def test_state_that_is_too_large_costs_no_answer(execute):
    source = b"def task(kwargs, state=None):\n    yield bytes(1 << 25)\n    return 5\n"
    keeper = FakeKeeper()
    assert value_of(execute(keeper, source)) == 5
    assert [(one.step, one.state) for one in keeper.heard] == [(1, None)]


def test_state_that_the_jail_cannot_read_is_forgotten(execute):
    keeper = FakeKeeper(Checkpoint("", 2, b"rubbish"))
    assert value_of(execute(keeper)) == [0, 1, 2]
    assert keeper.forgotten == 1
    assert execute.header.resumed_at == 0


def test_time_that_was_used_before_is_gone(execute):
    spins = b"def task(kwargs, state=None):\n    yield 1\n    while True: pass\n"
    keeper = FakeKeeper(Checkpoint("", 1, skeleton.encode(1), cpu_s=1e6, wall_s=1e6))
    frame = execute(keeper, spins)
    assert frame["status"] == "killed"


def test_task_that_yields_nothing_runs_as_ever(execute):
    keeper = FakeKeeper()
    assert value_of(execute(keeper, b"def task(kwargs):\n    return 3\n")) == 3
    assert keeper.heard == []


def test_items_say_how_many_are_done_and_keep_nothing(execute):
    keeper = FakeKeeper()
    frame = execute(keeper, items=2)
    assert [value_of(one) for one in frame["items"]] == [[0, 1, 2]] * 2
    assert [(one.step, one.state) for one in keeper.heard] == [(1, None)]
