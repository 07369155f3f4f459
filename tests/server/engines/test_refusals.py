from __future__ import annotations

import asyncio

import pytest
from starlette.responses import Response

from stoilo.executor.messages import SchedulerReply
from stoilo.server.engines.embedded.refusals import (
    LINES,
    RefusalLog,
    RefusalWatch,
    find_refusals,
)
from stoilo.server.engines.embedded.xml import (
    render_account_error,
    render_reply,
    render_upload_reply,
)

ADDRESS = "192.0.2.7"


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def lines(caplog):
    caplog.set_level("WARNING")
    return lambda: [record.getMessage() for record in caplog.records]


def test_refusal_names_caller_and_code(lines):
    RefusalLog().note("/sched", ADDRESS, "STO-E012")
    assert lines() == ["refused /sched from 192.0.2.7 [STO-E012]"]


def test_flood_is_cut_and_the_next_line_counts_it(lines):
    clock = Clock()
    log = RefusalLog(clock)
    for _ in range(LINES + 40):
        log.note("/sched", ADDRESS, "STO-E012")
    assert len(lines()) == LINES
    clock.now = 1.0
    log.note("/sched", ADDRESS, "STO-E012")
    assert lines()[-1].endswith("; 40 more before")


@pytest.mark.parametrize("path", ["/upload/0123abcd", "/sched\nforged line", "/" * 999])
def test_neither_secret_nor_markup_of_a_path_is_repeated(lines, path):
    RefusalLog().note(path, ADDRESS, "STO-E031")
    (line,) = lines()
    assert "0123" not in line
    assert "\n" not in line
    assert len(line) < 80


def said(*messages, **words):
    return render_reply(SchedulerReply(messages=messages, **words), "project")


@pytest.mark.parametrize(
    ("status", "body", "codes"),
    [
        (200, said(bad_key=True), ["STO-E100"]),
        (200, said("too many hosts [STO-E017]."), ["STO-E017"]),
        (200, said("No program for you [STO-E050]."), []),
        (200, said(), []),
        (200, render_upload_reply(-1, why="no [STO-E031]"), ["STO-E031"]),
        (200, render_upload_reply(0), []),
        (200, render_account_error(-206, "no [STO-E016]"), ["STO-E016"]),
        (413, b"too large [STO-E012]: hint", ["STO-E012"]),
        (200, b"a page about [STO-E012]", []),
        (404, b"Not Found", []),
    ],
)
def test_code_is_read_from_what_refuses_only(status, body, codes):
    assert find_refusals(status, body) == codes


@pytest.mark.parametrize(
    ("kind", "count"), [("text/plain", 1), ("application/octet-stream", 0)]
)
def test_answers_pass_unchanged_and_files_are_not_read(lines, kind, count):
    answer = Response(b"no [STO-E012]", status_code=400, media_type=kind)
    scope = {"type": "http", "path": "/sched", "client": (ADDRESS, 1), "headers": []}
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(RefusalWatch(answer)(scope, None, send))
    assert sent[1]["body"] == b"no [STO-E012]"
    assert len(lines()) == count
