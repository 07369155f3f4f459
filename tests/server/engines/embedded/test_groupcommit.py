from __future__ import annotations

import contextlib
import threading

import pytest

from stoilo.core.errors import InternalError
from stoilo.server.engines.embedded.groupcommit import CommitGroup

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


def start(group, names, fail=()):
    """Run work of these names in threads of their own; return threads and outcomes."""
    told = {}

    def run(name):
        def work(connection):
            connection.append(name)
            if name in fail:
                raise InternalError("STO-E003", name)
            return name.upper()

        try:
            told[name] = group.run(work)
        except InternalError as error:
            told[name] = error.code

    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    return threads, told


def run_together(names, *, fail=(), most=32, wait_until):
    """Let one begin and the others wait for it; return what was committed and told."""
    made = Transactions()
    group = CommitGroup(made.write, most)
    first, told = start(group, names[:1], fail)
    assert made.begun.wait(MOST_WAIT_S)
    rest, also = start(group, names[1:], fail)
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
    assert told == {"a": "A", "b": "B", "c": "STO-E003", "d": "D"}


def test_failure_alone_is_told():
    made = Transactions()
    made.go.set()
    with pytest.raises(ZeroDivisionError):
        CommitGroup(made.write).run(lambda _: 1 // 0)
    assert made.committed == []
