from __future__ import annotations

import contextlib
import threading

import pytest

from stoilo.core.errors import InternalError
from stoilo.server.engines.embedded.db.database import CommitGroup

MOST_WAIT_S = 60.0


class Transactions:
    """Counts transactions and what they hold; the first waits until it is let go."""

    def __init__(self):
        self.committed = []
        self.begun = threading.Event()
        self.go = threading.Event()

    @contextlib.contextmanager
    def write(self):
        done = []
        self.begun.set()
        assert self.go.wait(MOST_WAIT_S)
        yield done
        self.committed.append(list(done))


class Interrupt:
    """Stops the thread that does the work of these names, whoever's it is, once each."""

    def __init__(self, names=()):
        self.names = set(names)

    def meet(self, name):
        if name in self.names:
            self.names.remove(name)
            raise SystemExit


def start(group, names, fail=(), stop=None):
    """Run work of these names in threads of their own; return threads and outcomes."""
    told, stop = {}, stop or Interrupt()

    def run(name):
        def work(connection):
            connection.append(name)
            stop.meet(name)
            if name in fail:
                raise InternalError("STO-R030", name)
            return name.upper()

        try:
            told[name] = group.run(work)
        except InternalError as error:
            told[name] = error.code
        except SystemExit:
            told[name] = "stopped"

    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    return threads, told


def run_together(names, *, fail=(), stop=None, most=32, made=None, wait_until):
    """Let one begin and the others wait for it; return what was committed and told."""
    made = made or Transactions()
    group = CommitGroup(made.write, most)
    first, told = start(group, names[:1], fail, stop)
    assert made.begun.wait(MOST_WAIT_S)
    rest, also = start(group, names[1:], fail, stop)
    wait_until(lambda: len(group._waiting) == len(names) - 1)
    made.go.set()
    for thread in (*first, *rest):
        thread.join(MOST_WAIT_S)
    return made.committed, told | also


def test_those_who_wait_together_share_one_transaction(wait_until):
    committed, told = run_together("abcd", wait_until=wait_until)
    assert [len(one) for one in committed] == [1, 3]
    assert told == {name: name.upper() for name in "abcd"}


def test_group_has_a_most(wait_until):
    committed, _ = run_together("abcdef", most=2, wait_until=wait_until)
    assert [len(one) for one in committed] == [1, 2, 2, 1]


def test_one_that_fails_harms_none_of_its_group(wait_until):
    committed, told = run_together("abcd", fail="c", wait_until=wait_until)
    assert sorted(name for one in committed for name in one) == ["a", "b", "d"]
    assert told == {"a": "A", "b": "B", "c": "STO-R030", "d": "D"}


def test_failure_alone_is_told():
    made = Transactions()
    made.go.set()
    with pytest.raises(ZeroDivisionError):
        CommitGroup(made.write).run(lambda _: 1 // 0)
    assert made.committed == []


# ------------------------------------------------------------- what ends a whole group


class Locked(Transactions):
    """Transactions that get the lock so many times and never again."""

    def __init__(self, times):
        super().__init__()
        self.times, self.tries = times, 0

    @contextlib.contextmanager
    def write(self):
        self.tries += 1
        if self.tries > self.times:
            raise InternalError("STO-R030", "locked")
        with super().write() as done:
            yield done


def test_lock_that_does_not_come_is_waited_for_once_a_group(wait_until):
    made = Locked(1)
    _, told = run_together("abcdef", made=made, wait_until=wait_until)
    assert made.tries == 2
    assert told == {"a": "A"} | dict.fromkeys("bcdef", "STO-R030")


def test_lock_that_is_lost_on_the_way_is_not_asked_for_by_every_one(wait_until):
    made = Locked(2)
    committed, told = run_together("abcd", fail="c", made=made, wait_until=wait_until)
    assert (committed, made.tries) == ([["a"]], 3)
    assert told == {"a": "A"} | dict.fromkeys("bcd", "STO-R030")


def test_group_whose_leader_is_stopped_is_done_by_another(wait_until):
    stop = Interrupt("b")
    committed, told = run_together("abcd", stop=stop, wait_until=wait_until)
    (one,) = (name for name, value in told.items() if value == "stopped")
    rest = sorted(set("abcd") - {one})
    assert sorted(name for done in committed for name in done) == rest
    assert all(told[name] == name.upper() for name in rest)


def test_leader_that_is_stopped_leaves_nothing_of_its_own_behind():
    made = Transactions()
    made.go.set()
    group = CommitGroup(made.write)
    with pytest.raises(SystemExit):
        group.run(lambda _: Interrupt("a").meet("a"))
    assert (made.committed, group._waiting) == ([], [])
    assert group.run(lambda _: "next") == "next"
