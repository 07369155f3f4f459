from __future__ import annotations

import pytest
from starlette.requests import Request

from stoilo.core.boinc.messages import SchedulerReply
from stoilo.server.engines.embedded.web.refusal_log import LINES, RefusalLog


def request(path="/sched", address="192.0.2.7"):
    scope = {"type": "http", "path": path, "headers": [], "client": (address, 1)}
    return Request(scope | {"scheme": "http", "server": ("x", 80), "query_string": b""})


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def lines(caplog):
    caplog.set_level("WARNING")
    return lambda: [record.getMessage() for record in caplog.records]


def test_refusal_names_caller_and_code(lines):
    RefusalLog().note(request(), "STO-E012")
    assert lines() == ["refused /sched from 192.0.2.7 [STO-E012]"]


def test_flood_is_cut_and_the_next_line_counts_it(lines):
    clock = Clock()
    log = RefusalLog(clock)
    for _ in range(LINES + 40):
        log.note(request(), "STO-E012")
    assert len(lines()) == LINES
    clock.now = 1.0
    log.note(request(), "STO-E012")
    assert lines()[-1].endswith("; 40 more before")


@pytest.mark.parametrize("path", ["/upload/0123abcd", "/sched\nforged line", "/" * 999])
def test_neither_secret_nor_markup_of_a_path_is_repeated(lines, path):
    RefusalLog().note(request(path), "STO-E014")
    (line,) = lines()
    assert "0123" not in line
    assert "\n" not in line
    assert len(line) < 80


@pytest.mark.parametrize(
    ("reply", "codes"),
    [
        (SchedulerReply(bad_key=True), ["STO-E016"]),
        (SchedulerReply(messages=("too many hosts [STO-E017].",)), ["STO-E017"]),
        (SchedulerReply(messages=("No program for you [STO-K076].",)), []),
        (SchedulerReply(), []),
    ],
)
def test_only_what_is_abuse_in_a_reply_is_logged(lines, reply, codes):
    RefusalLog().note_reply(request(), reply)
    assert [line[-9:-1] for line in lines()] == codes
