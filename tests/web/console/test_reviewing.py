"""What a reviewer reads before he signs elsewhere, and what his pages say afterwards."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

import pytest

from stoilo.client.reviewing import digest_parts, make_review, read_folder
from stoilo.core.codec.skeleton import encode
from stoilo.core.types import Finding, Severity, Verdict
from stoilo.server.admission import tokens
from stoilo.web.console.reviewing import MOST_COMPARED, by_line, compare
from tests.support.reviews import make_desk

if TYPE_CHECKING:
    from pathlib import Path

    from stoilo.policies.gate import GateRequest
    from tests.support.console import ConsoleBench, Door
    from tests.support.reviews import Desk

FIRST = b"def task(kwargs):\n    return kwargs['x'] + 1\n"
SECOND = b"def task(kwargs):\n    return kwargs['x'] + 2\n"
HOSTILE = (
    b"def task(kwargs):\n    # </code></pre><script>alert(1)</script>\n"
    b"    return '<img src=x onerror=alert(1)>'\n"
)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return make_desk(tmp_path)


@pytest.fixture
def served(door: Door, desk: Desk) -> ConsoleBench:
    return door.show(desk.bench)


def page(served: ConsoleBench, task: str, name: str = "ann") -> str:
    return served.reviewer(name).ask(f"/console/review/{task}").words


def test_queue_says_what_waits_since_when_and_of_whom(
    desk: Desk, served: ConsoleBench
) -> None:
    task = desk.submit()
    words = served.reviewer().ask("/console/reviews").words
    (waiting,) = desk.bench.server.review_desk.queue(desk.owner("ann"), 0)[1]
    assert "1 task, the longest waiting first" in words
    assert f"{task[:12]} task, pure {waiting.submitter[:12]} none" in words
    assert "ada" not in words  # who the submitter is


def test_reviewer_comes_to_his_queue_from_the_console_s_address(
    served: ConsoleBench,
) -> None:
    answer = served.reviewer().ask("/console/")
    assert (answer.status, answer.headers["location"]) == (303, "/console/reviews")


def test_page_shows_what_is_signed_and_how(desk: Desk, served: ConsoleBench) -> None:
    task = desk.submit()
    words = page(served, task)
    spec = desk.task(task).spec
    for text in (
        "waits for a review",
        "policy wants every task of level pure",
        "Nobody has signed it yet.",
        "return kwargs",
        '"x": 1',
        spec.task_module,
        f"stoilo policy review sign task-{task[:12]} --key reviewer.pem",
        f"stoilo policy review submit {task} task-{task[:12]}/review.json",
    ):
        assert text in words, text


def test_download_is_the_folder_that_signs_and_has_the_digests_of_the_page(
    desk: Desk, served: ConsoleBench, tmp_path: Path
) -> None:
    task, visitor = desk.submit(), served.reviewer()
    body = visitor.ask(f"/console/review/{task}/folder.zip").body
    zipfile.ZipFile(io.BytesIO(body)).extractall(tmp_path / "out")
    folder = read_folder(tmp_path / "out" / f"task-{task[:12]}")
    words = visitor.ask(f"/console/review/{task}").words
    digests = digest_parts(make_review(folder, 1))
    assert all(one in words for one in digests.values())
    assert visitor.ask(f"/console/review/{task}/folder.zip").body == body


def test_signed_task_is_shown_as_approved_and_by_whom(
    desk: Desk, served: ConsoleBench
) -> None:
    task = desk.submit()
    desk.hand_in(task)
    desk.bench.server.leaves.append_all(desk.bench.log)
    words = page(served, task)
    assert "with volunteers" in words
    assert "Approved 20" in words
    assert "by a, for these arguments, until" in words
    assert desk.keys[0].public.raw.hex() in words
    assert "of the log" in words
    assert "Sign it on your own machine" not in words
    assert "Nothing waits." in served.reviewer().ask("/console/reviews").words


def test_review_of_a_withdrawn_reviewer_is_no_approval(
    desk: Desk, served: ConsoleBench
) -> None:
    task = desk.submit()
    desk.hand_in(task)
    desk.named.clear()
    answer = served.reviewer().ask(f"/console/review/{task}")
    assert (answer.status, "STO-R027" in answer.words) == (404, True)


def test_own_task_is_somebody_else_s_to_sign(desk: Desk, served: ConsoleBench) -> None:
    task = desk.submit()
    words = page(served, task, "ada")
    assert "somebody else must review it" in words
    assert "Sign it on your own machine" not in words


# -- differences -------------------------------------------------------------------------


def test_source_is_compared_with_the_last_approved_of_function_and_submitter(
    desk: Desk, served: ConsoleBench
) -> None:
    first = desk.submit("k1", task_module=FIRST)
    desk.hand_in(first)
    words = page(served, desk.submit("k2", task_module=SECOND))
    assert f"A review of {first[:12]}" in words
    assert "- return kwargs['x'] + 1 + return kwargs['x'] + 2" in words


def test_first_source_of_a_submitter_has_nothing_to_be_compared_with(
    desk: Desk, served: ConsoleBench
) -> None:
    desk.hand_in(desk.submit("k1", task_module=FIRST))
    with desk.bench.store.write() as connection:
        role, now = tokens.Role.RESEARCHER, desk.bench.clock()
        desk.bench.token = tokens.issue_token(connection, "bob", role, now)
    words = page(served, desk.submit("k2", task_module=SECOND))
    assert "has been approved: read all of it" in words
    assert "+ 1" not in words


def test_same_source_with_other_arguments_says_so(
    desk: Desk, served: ConsoleBench
) -> None:
    desk.hand_in(desk.submit("k1"))
    assert "same, byte for byte" in page(served, desk.submit("k2", x=2))


@pytest.mark.parametrize("turned", [False, True])
def test_hostile_source_is_text_in_listing_and_differences(
    desk: Desk, served: ConsoleBench, turned: bool
) -> None:
    before, after = (HOSTILE, FIRST) if turned else (FIRST, HOSTILE)
    desk.hand_in(desk.submit("k1", task_module=before))
    task = desk.submit("k2", task_module=after, arguments=encode({"x": "<b>bold"}))
    text = served.reviewer().ask(f"/console/review/{task}").text
    assert "&lt;script&gt;alert(1)" in text
    assert ("<script" in text, "<img" in text, "<b>bold" in text) == (False,) * 3


def test_hidden_characters_are_shown_in_differences() -> None:
    lines = compare(b"x = 1\n", "x = 1  # \u202e\n".encode())
    assert [kind for kind, _ in lines or ()] == ["place", "removed", "added", ""]
    assert "U+202E" in str(lines)


def test_lines_are_told_apart_without_colours() -> None:
    lines = [str(line) for _, line in compare(FIRST, SECOND) or ()]
    assert {line[0] for line in lines} == {"@", " ", "-", "+"}


def test_very_long_sources_are_not_compared_here() -> None:
    most = b"x\n" * (MOST_COMPARED - 1)
    assert compare(most, most + b"y") is not None  # control
    assert compare(most, most + b"y\nz") is None


# -- findings ----------------------------------------------------------------------------


class RemarkingJudge:
    """Admits everything, with a remark on a line and one about the validators."""

    def judge_many(self, requests: list[GateRequest]) -> list[Verdict]:
        words = (("slow <b>", 2), ("in the validators: odd", 1))
        found = tuple(
            Finding("STO-P034", Severity.WARNING, line, 5, line, 9, text, "")
            for text, line in words
        )
        verdict = Verdict(
            admitted=True,
            level="pure",
            lowest_level="pure",
            policy_digest="1" * 64,
            source_digest="2" * 64,
            findings=found,
        )
        return [verdict] * len(requests)


def test_findings_stand_at_their_line(desk: Desk, served: ConsoleBench) -> None:
    vars(desk.bench.judge)["judge_many"] = RemarkingJudge().judge_many
    answer = served.reviewer().ask(f"/console/review/{desk.submit()}")
    listing = answer.text.partition('class="listing"')[2]
    after, _, _ = listing.partition('id="L2"')[2].partition("after-source")
    assert "Warning STO-P034, column 5: slow &lt;b&gt;" in after
    assert "validators" not in after
    assert "Warning STO-P034, line 1 in the validators: odd" in answer.words
    assert "STO-P034" in served.reviewer().ask("/console/reviews").words


def test_findings_of_validators_are_of_no_line_of_the_task() -> None:
    (verdict,) = RemarkingJudge().judge_many([None])  # type: ignore[list-item]  # not read
    assert {line: len(found) for line, found in by_line(verdict.findings).items()} == {
        2: 1
    }
