"""What a researcher reads of his tasks, and what his buttons do; sent twice they do it once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import delete

from stoilo.audit.read.case import parse_case
from stoilo.core.codec.nodes import Instance, Ndarray
from stoilo.core.codec.skeleton import decode, encode
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.server.db import schema
from stoilo.server.engines.interface import ResultOutcome, ResultProgress, ResultView
from stoilo.server.engines.status import status_of
from stoilo.web.console.research import (
    MOST_PAGES,
    ON_PAGE,
    describe_value,
    group_by_label,
)
from tests.support.console import run
from tests.support.server import MemoryEngine, make_result

if TYPE_CHECKING:
    from tests.support.console import Answer, ConsoleBench, Visitor

VALUE = {"answer": 42, "far": float("inf")}


def submit(served: ConsoleBench, key: str, **fields: object) -> str:
    """Return the id of a task whose workunit exists."""
    return run(served.bench.issued(key, **fields))[0].rpartition("_")[0]


def finish(
    served: ConsoleBench, task_id: str, frame: object, output: bytes = b""
) -> None:
    """Let two hosts answer a task alike."""
    name, statement = f"{task_id}_1", served.bench.statement(task_id)
    files = [
        make_result(f"{name}_{n}", statement, frame, output=output) for n in (0, 1)
    ]
    served.bench.engine.deliver(name, files)


def succeed(served: ConsoleBench, task_id: str, value: object = VALUE) -> None:
    finish(served, task_id, {"status": "ok", "value": encode(value)}, b"hello\n")


def press(visitor: Visitor, task_id: str, what: str) -> tuple[Answer, Answer]:
    """Send a button's form twice, as a reload does; returns the pages that follow."""
    page = f"/console/task/{task_id}"
    action = f"{page}/{what}"
    fields = visitor.ask(page).forms()[action]
    places = [visitor.post(action, fields).headers["location"] for _ in range(2)]
    first, second = (visitor.ask(place) for place in places)
    return first, second


def count_tasks(served: ConsoleBench) -> int:
    with served.bench.store.read() as connection:
        return len(connection.execute(schema.task.select()).all())


def test_list_says_why_a_task_waits(served: ConsoleBench) -> None:
    submit(served, "k1", label="darts")
    words = served.visitor().ask("/console/").words
    assert "darts with volunteers: needs 2 distinct users, 1 attached" in words


def test_list_is_filtered_by_state_and_label(served: ConsoleBench) -> None:
    succeed(served, submit(served, "k1", label="over"))
    submit(served, "k2", label="open & <b>")
    visitor = served.visitor()
    for query, seen in {
        "": {"over", "open"},
        "?state=succeeded": {"over"},
        "?state=running": {"open"},
        "?label=over": {"over"},
        "?label=open+%26+%3Cb%3E": {"open"},
        "?label=nothing": set(),
    }.items():
        text = visitor.ask(f"/console/{query}").text.partition("<tbody>")[2]
        assert {one for one in ("over", "open") if f">{one}" in text} == seen


@pytest.mark.parametrize(
    "query",
    ["state=nonsense", "page=0", "page=x", "page=1e3", f"page={MOST_PAGES + 1}",
     f"page={'9' * 50}", f"label={'x' * 129}", "label=%00", "state=%ff"],
)  # fmt: skip
def test_senseless_question_is_told_so(served: ConsoleBench, query: str) -> None:
    answer = served.visitor().ask(f"/console/?{query}")
    assert (answer.status, "STO-R010" in answer.words) == (400, True)


def test_list_goes_on_over_pages(served: ConsoleBench) -> None:
    made = {submit(served, f"k{n}") for n in range(ON_PAGE + 2)}
    visitor = served.visitor()
    pages = [visitor.ask(f"/console/?page={n}").text for n in (1, 2, 3)]
    found = [{one for one in made if one in page} for page in pages]
    assert list(map(len, found)) == [ON_PAGE, 2, 0]
    assert found[0] | found[1] == made
    assert ['rel="next"' in page for page in pages] == [True, False, False]


def test_page_of_a_task_tells_all_that_its_owner_may_know(served: ConsoleBench) -> None:
    task = submit(served, "k1", label="darts", topics=["maths"])
    succeed(served, task)
    words = served.visitor().ask(f"/console/task/{task}").words
    for text in (
        "succeeded",
        "A dictionary of 2 (answer: a whole number, far: a number)",
        '"answer": 42',
        "hello",  # what it printed
        "A dictionary of 1 (x: a whole number)",
        "maths",
        "Processor time 60 s",
        "return kwargs",
        "The gate had no remark.",
        "Must agree 2 results",
    ):
        assert text.lower() in words.lower(), text


def test_task_s_own_error_comes_first(served: ConsoleBench) -> None:
    task = submit(served, "k1")
    error = {"error_type": "ValueError", "error_text": "<b>line 2</b>"}
    finish(served, task, {"status": "user_error", **error})
    answer = served.visitor().ask(f"/console/task/{task}")
    before, _, after = answer.text.partition("<h2")
    assert "&lt;b&gt;line 2" in before
    assert "<b>line 2" not in answer.text
    assert "Result" not in after.split("</h2>")[0]


class OneHostEngine(MemoryEngine):
    """Says of every copy that host 7 has it."""

    def status(self, name: str):
        state, outcome = ResultProgress.IN_PROGRESS, ResultOutcome.NONE
        views = [
            ResultView(f"{name}_{n}", state, outcome, "", 1, 0, host=7) for n in (0, 1)
        ]
        return status_of(name, views, None, 1, 2)


def test_host_has_one_pseudonym_an_account(served: ConsoleBench) -> None:
    bench = served.bench
    task = submit(served, "k1")
    bench.server.desk._engine = OneHostEngine(bench.directory)
    owners = [find_owner(served, name) for name in ("ada", "bob")]
    names = {*bench.server.desk.find_hosts(owners[0], task).values()}
    page = served.visitor().ask(f"/console/task/{task}").text
    assert len(names) == 1
    assert page.count(f"<td><code>{names.pop()}</code></td>") == 2
    salts = {one.salt for one in owners}
    assert len(salts) == 2  # so another account is shown another name


def find_owner(served: ConsoleBench, name: str):
    request = served.visitor(name)
    from stoilo.server.admission import tokens  # noqa: PLC0415

    with served.bench.store.read() as connection:
        token = request.cookies[served.console.sessions.cookie]
        return tokens.find_owner(connection, token, served.bench.clock())


# -- results as files --------------------------------------------------------------------


def test_value_is_downloaded_as_json_and_as_encoded(served: ConsoleBench) -> None:
    task, visitor = submit(served, "k1"), served.visitor()
    succeed(served, task)
    page = f"/console/task/{task}/result/value"
    text, raw = visitor.ask(f"{page}.json"), visitor.ask(f"{page}.skeleton")
    assert json.loads(text.body) == {"answer": 42, "far": {"$float": "inf"}}
    assert decode(raw.body) == VALUE
    saved = [one.headers["content-disposition"] for one in (text, raw)]
    assert saved == [
        f'attachment; filename="{task}.{end}"' for end in ("json", "skeleton")
    ]


def test_case_is_its_owner_s_alone_and_needs_an_end(served: ConsoleBench) -> None:
    task, visitor = submit(served, "k1"), served.visitor()
    page = f"/console/task/{task}/result/case.json"
    assert visitor.ask(page).status == 400  # there is nothing to compare with yet
    succeed(served, task)
    answer = visitor.ask(page)
    assert parse_case(answer.body).statement
    saved = f'attachment; filename="{task}.case.json"'
    assert answer.headers["content-disposition"] == saved
    assert served.visitor("bob").ask(page).status == 404


def test_large_value_is_downloaded_whole(served: ConsoleBench) -> None:
    task, visitor = submit(served, "k1"), served.visitor()
    value = b"x" * (2 * 1024 * 1024)
    succeed(served, task, value)
    assert "More than 1 MiB" in visitor.ask(f"/console/task/{task}").words
    answer = visitor.ask(f"/console/task/{task}/result/value.skeleton")
    assert decode(answer.body) == value
    assert visitor.ask(f"/console/task/{task}/result/value.json").status == 404


@pytest.mark.parametrize(
    "name", ["value.json", "value.skeleton", "0.skeleton", "x", "-1.json"]
)
def test_result_that_is_not_there_is_not_found(served: ConsoleBench, name: str) -> None:
    task = submit(served, "k1")
    answer = served.visitor().ask(f"/console/task/{task}/result/{name}")
    assert (answer.status, "STO-R003" in answer.words) == (404, True)


def test_items_of_a_map_are_counted_and_downloaded(served: ConsoleBench) -> None:
    calls = encode([{"x": 1}, {"x": 2}])
    task = submit(served, "k1", arguments=calls, map_items=2)
    good = {"status": "ok", "value": encode(5)}
    bad = {"status": "user_error", "error_type": "KeyError", "error_text": "x"}
    finish(served, task, {"status": "ok", "items": [good, bad]})
    visitor = served.visitor()
    words = visitor.ask(f"/console/task/{task}").words
    assert "1 succeeded, 1 its own error of 2 items" in words
    page = f"/console/task/{task}/result"
    items = json.loads(visitor.ask(f"{page}/value.json").body)
    assert [one["state"] for one in items] == ["succeeded", "user_error"]
    assert decode(visitor.ask(f"{page}/0.skeleton").body) == 5
    assert visitor.ask(f"{page}/1.skeleton").status == 404


def test_source_is_downloaded_as_it_was_admitted(served: ConsoleBench) -> None:
    source = "def task(kwargs):\n    return 'größe'\n".encode()
    task = submit(served, "k1", task_module=source)
    answer = served.visitor().ask(f"/console/task/{task}/source.py")
    assert answer.body == source
    assert answer.headers["content-type"].startswith("text/plain")


# -- buttons -----------------------------------------------------------------------------


def test_cancel_sent_twice_cancels_once_and_says_so(served: ConsoleBench) -> None:
    task, visitor = submit(served, "k1"), served.visitor()
    first, second = press(visitor, task, "cancel")
    assert "The task was cancelled." in first.words
    assert "nothing was changed" in second.words
    assert served.bench.poll(task).code == "STO-R062"


def test_cancel_of_an_ended_task_changes_nothing(served: ConsoleBench) -> None:
    task, visitor = submit(served, "k1"), served.visitor()
    form = visitor.ask(f"/console/task/{task}").forms()[f"/console/task/{task}/cancel"]
    succeed(served, task)
    visitor.post(f"/console/task/{task}/cancel", form)
    assert served.bench.poll(task).state == "succeeded"


def test_resubmit_sent_twice_makes_one_task_more(served: ConsoleBench) -> None:
    fields = {"label": "darts", "topics": ["maths"], "publish_source": True}
    task, visitor = submit(served, "k1", **fields), served.visitor()
    first, second = press(visitor, task, "resubmit")
    assert count_tasks(served) == 2
    assert first.words == second.words
    assert "the same work once more" in first.words
    assert "darts" in first.words


def test_task_that_is_submitted_again_is_the_same_request(served: ConsoleBench) -> None:
    task, visitor = submit(served, "k1", label="a", level="pure"), served.visitor()
    press(visitor, task, "resubmit")
    with served.bench.store.read() as connection:
        found = connection.execute(schema.task.select()).all()
    assert len({row.spec for row in found}) == 1
    keys = sorted(row.idempotency_key for row in found)
    assert (keys[1], keys[0][:8]) == ("k1", "console-")


def test_task_whose_source_is_gone_is_not_submitted_again(served: ConsoleBench) -> None:
    task, visitor = submit(served, "k1"), served.visitor()
    page = f"/console/task/{task}"
    form = visitor.ask(page).forms()[f"{page}/resubmit"]
    with served.bench.store.write() as connection:
        connection.execute(delete(schema.content))
    assert "It was deleted" in visitor.ask(page).words
    answer = visitor.post(f"{page}/resubmit", form)
    assert (answer.status, "STO-L145" in answer.words) == (400, True)
    assert count_tasks(served) == 1


def test_resubmit_without_a_key_makes_no_task(served: ConsoleBench) -> None:
    task, visitor = submit(served, "k1"), served.visitor()
    page = f"/console/task/{task}"
    form = visitor.ask(page).forms()[f"{page}/resubmit"] | {"key": "../x"}
    assert visitor.post(f"{page}/resubmit", form).status == 403
    assert count_tasks(served) == 1


# -- pure parts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (None, "None"),
        (True, "a truth value"),
        (1.5, "a number"),
        ("größe", "text of 5"),
        ([1, 2], "a list of 2"),
        (Ndarray("float64", (3, 4), b""), "an array of float64, shape (3, 4)"),
        (Instance("pandas.DataFrame", {}), "a pandas.DataFrame"),
        ({"a": (1,)}, "a dictionary of 1 (a: a tuple of 1)"),
    ],
)
def test_value_is_described_by_its_shape(node: object, text: str) -> None:
    assert describe_value(node) == text


def test_labels_that_differ_by_a_number_are_one_training() -> None:
    rows = [
        ("fit round-2", "running"),
        ("fit round-1", "succeeded"),
        ("darts", "expired"),
    ]
    tasks = [pb.ListedTask(label=label, state=state) for label, state in rows]
    found = [(one.name, one.ended, one.states.total()) for one in group_by_label(tasks)]
    assert found == [("fit", 1, 2), ("darts", 1, 1)]


def test_label_s_page_shows_how_far_it_is(served: ConsoleBench) -> None:
    succeed(served, submit(served, "k1", label="fit 1"))
    submit(served, "k2", label="fit 2")
    words = served.visitor().ask("/console/labels").words
    assert "fit 1 of 2 tasks 1 with volunteers, 1 succeeded" in words
