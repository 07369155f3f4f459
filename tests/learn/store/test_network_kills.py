"""kill -9 of a network shard at each point of a request: in the end each bit is as if none was.

Rows: before and after a push is in the file, before, within and after the reply, before each
statement of SQLite and within one. Columns: functions and optimisers; a batch optimiser.
"""

import contextlib
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from stoilo.core.errors import StoiloError, UsageError
from stoilo.learn.core.orders import Snapshot
from stoilo.learn.core.tensors import flatten
from stoilo.learn.methods.lbfgs import Rules
from stoilo.learn.methods.sandblaster import Sandblaster, SandblasterSettings
from stoilo.learn.store.protocol import Change, Push, ShardOptimizer
from stoilo.learn.store.remote import RemoteShard
from stoilo.learn.store.shards import LocalShard
from tests.support.learning import Net, Volunteers, load_digits, run_serially
from tests.support.networkshard import NetworkShard
from tests.support.resuming import store

PROGRAM = Path(__file__).parent / "programs" / "dying.py"
POINTS = [
    *("before_append", "after_append", "before_reply", "half_reply", "after_reply"),
    *("statement", "within"),
]
MOST = 8
WORKERS = ["w0", "w1"]
ADAM = ShardOptimizer("adam", "adam", {"rate": 0.1}, order=WORKERS)
NET = Net((64, 10))

# Where the other side is gone before the handshake, Python itself leaves the socket, which
# nobody has yet, to be collected.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)


class Dying(NetworkShard):
    """A network shard that dies at a point, and is started again as often."""

    def __init__(self, folder, point, kind="careful"):
        self._ended = False
        self._lives = folder.with_suffix(".lives")
        more = (point, kind, str(MOST), str(self._lives))
        super().__init__(folder, (sys.executable, str(PROGRAM), *more))
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    @property
    def lives(self):
        return len(self._lives.read_text())

    def start(self):
        """Start it; one that dies before it has said where it is starts again."""
        while not self._ended:
            with contextlib.suppress(ValueError):  # no line
                super().start()
                return
            self.process.communicate()

    def _watch(self):
        while not self._ended:
            self.process.wait()
            self.process.stdout.close()
            self.start()

    def __exit__(self, *_):
        self._ended = True
        self.process.kill()
        self._watcher.join()
        self.process.stdout.close()


def push_all(shard):
    """Push with a function and an optimiser, the second worker first; return all cells."""
    shard.create({"sum": np.zeros(3), "w": np.ones(3), "count": {"a": 1}})
    for clock in range(3):
        for worker in reversed(WORKERS):
            slope = np.full(3, clock + 0.3 * int(worker[1:]))
            changes = [
                Change("w", "adam", slope),
                Change("sum", "add", slope),
                Change("count", "count", {worker: clock}),
            ]
            shard.apply(Push(f"r/{worker}", clock, changes))
    return repr(shard.read(["sum", "w", "count"]))


def through_kills(folder, point, kind="careful"):
    with Dying(folder, point, kind) as process:
        shard = RemoteShard(process.place, [ADAM], lives=3 * MOST, takeover_s=60.0)
        try:
            found = push_all(shard)
            if process.lives <= MOST:  # kills that are left, on what is acknowledged
                process.process.kill()
                found = repr(shard.read(["sum", "w", "count"]))
        finally:
            shard.close()
        assert process.lives >= 4, "too few kills to say anything"
        return found


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_values_and_optimisers_end_as_if_nobody_had_been_killed(point, tmp_path):
    wanted = push_all(LocalShard(functions=[ADAM]))
    assert through_kills(tmp_path / "s", point) == wanted


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "point"), [
    ("careless", "statement"), ("hasty", "after_reply"),
])  # fmt: skip
def test_control_shards_that_keep_no_promise_end_elsewhere(kind, point, tmp_path):
    wanted = push_all(LocalShard(functions=[ADAM]))
    try:
        found = through_kills(tmp_path / "s", point, kind)
    except UsageError:  # not even the key is there
        return
    assert found != wanted


def begin(places=()):
    digits = load_digits()
    crew = Volunteers(NET, digits.images, digits.labels, np.split(np.arange(60), [25]))
    rules = Rules(iterations=3)
    wanted = SandblasterSettings(1, 1e-3, 1, rules=rules, places=places)
    return crew, Sandblaster(Snapshot(0, NET.start(spread=0.0)), crew.sizes, wanted)


def descend(process):
    """Train; at each loss of the shard go on from the last save. Return the end."""
    saved, again = None, 0
    while True:
        again += 1
        assert again < 3 * MOST
        method = None
        try:
            crew, method = begin((process.place,))
            if saved is not None:
                method.load(saved)
            while not method.finished:
                run_serially(method, crew.answer, limit=1)
                saved = store(method.save())
                method.note_saved()
            return flatten(method.snapshot.parameters), again
        except StoiloError as error:
            assert error.code in {"STO-T037", "STO-T038"}, error
        finally:
            if method is not None:
                method.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["before_reply", "half_reply", "after_reply", "within"]
)
def test_batch_optimiser_ends_as_if_nobody_had_been_killed(point, tmp_path):
    crew, method = begin()
    run_serially(method, crew.answer)
    with Dying(tmp_path / "s", point) as process:
        found, again = descend(process)
    assert again > 1, "no kill was met"
    assert found.tobytes() == flatten(method.snapshot.parameters).tobytes()
