"""The volunteer's HTTP against a project that cuts, moves, lies and is in trouble."""

from __future__ import annotations

import dataclasses
import hashlib

import msgspec
import pytest

from stoilo.core.boinc.messages import FileInfo, SchedulerReply
from stoilo.core.errors import TrustError, UnreachableError
from stoilo.executor.volunteer.ledger import Ledger, ResultRecord
from stoilo.executor.volunteer.scheduler import (
    Caller,
    Settings,
    request_of,
)
from stoilo.executor.volunteer.transfer import (
    Refused,
    Transfer,
    keep_content,
    matches,
)
from stoilo.server.engines.embedded.web.replies import render_reply
from tests.support.scripted import Scripted, ScriptedProject

DATA = bytes(range(256)) * 400
MD5 = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
SHA256 = hashlib.sha256(DATA).hexdigest()
LARGE = DATA * 3  # so large that a volunteer asks how much is there
MD5_OF_LARGE = hashlib.md5(LARGE, usedforsecurity=False).hexdigest()
SHA256_OF_LARGE = hashlib.sha256(LARGE).hexdigest()


@pytest.fixture
def project():
    with ScriptedProject() as made:
        yield made


@pytest.fixture
def transfer(project):
    made = Transfer(project.url, timeout_s=5)
    yield made
    made.close()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "file"


def file_at(project, md5=MD5):
    return FileInfo("file", f"{project.url}d", len(DATA), md5)


def test_download_that_was_cut_goes_on_where_it_stopped(project, transfer, target):
    rest = Scripted(
        DATA[1000:], 206, {"content-range": f"bytes 1000-{len(DATA) - 1}/{len(DATA)}"}
    )
    project.answer("/d", Scripted(DATA, cut_after=1000), rest)
    with pytest.raises(UnreachableError):
        transfer.download(file_at(project), target)
    assert not target.exists()
    transfer.download(file_at(project), target)
    assert target.read_bytes() == DATA
    assert [asked.range for asked in project.asked] == ["", "bytes=1000-"]


def test_server_without_ranges_sends_all_again(project, transfer, target):
    project.answer("/d", Scripted(DATA, cut_after=1000), Scripted(DATA))
    with pytest.raises(UnreachableError):
        transfer.download(file_at(project), target)
    transfer.download(file_at(project), target)
    assert target.read_bytes() == DATA


@pytest.mark.parametrize(
    "wrong",
    [
        Scripted(DATA[:9], 206, {"content-range": "bytes 0-8/102400"}),
        Scripted(DATA[:9], 206),
        Scripted(b"", 416),
    ],
)
def test_wrong_part_of_a_file_is_dropped_and_all_asked_for(
    project, transfer, target, wrong
):
    project.answer("/d", Scripted(DATA, cut_after=1000), wrong, Scripted(DATA))
    for _ in range(2):
        with pytest.raises(UnreachableError):
            transfer.download(file_at(project), target)
    transfer.download(file_at(project), target)
    assert target.read_bytes() == DATA
    assert [asked.range for asked in project.asked] == ["", "bytes=1000-", ""]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_download_that_is_refused_is_refused_for_good(
    project, transfer, target, status
):
    project.answer("/d", Scripted(status=status))
    with pytest.raises(Refused):
        transfer.download(file_at(project), target)


@pytest.mark.parametrize("status", [301, 408, 425, 429, 500, 502, 503])
def test_trouble_puts_a_download_off(project, transfer, target, status):
    project.answer("/d", Scripted(status=status, headers={"location": "/other"}))
    with pytest.raises(UnreachableError) as caught:
        transfer.download(file_at(project), target)
    assert not isinstance(caught.value, Refused)
    assert [asked.path for asked in project.asked] == ["/d"]  # nobody was followed


@pytest.mark.parametrize("data", [DATA[:-1] + b"x", DATA + b"x"])
def test_other_bytes_than_announced_are_thrown_away(project, transfer, target, data):
    project.answer("/d", Scripted(data))
    with pytest.raises(TrustError, match="STO-X005"):
        transfer.download(file_at(project, "0" * 32), target)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("named", "summed", "counts"),
    [
        (SHA256, "0" * 32, True),  # the stronger name says enough
        ("0" * 64, MD5, False),
        ("file", "0" * 32, False),
        ("file", "", True),  # programs are signed instead
    ],
)
def test_file_counts_by_its_name_or_else_by_its_md5(target, named, summed, counts):
    target.write_bytes(DATA)
    assert matches(FileInfo(named, "", len(DATA), summed), target) is counts
    assert not matches(FileInfo(named, "", len(DATA) + 1, summed), target)


@pytest.mark.parametrize("content", [DATA, DATA[:-1] + b"x", DATA[:-1], b""])
def test_content_of_a_reply_is_kept_only_if_it_is_the_named_file(target, content):
    keep_content(FileInfo(SHA256, "", len(DATA), MD5, content=content), target)
    kept = target.read_bytes() if target.exists() else None
    assert kept == (DATA if content == DATA else None)


def reply(status=0, size=None, more=""):
    held = more if size is None else f"<file_size>{size}</file_size>{more}"
    text = f"<data_server_reply><status>{status}</status>{held}</data_server_reply>"
    return Scripted(text.encode())


def upload(project, transfer, tmp_path, data=LARGE):
    path = tmp_path / "result"
    path.write_bytes(data)
    url = f"{project.url}up"
    copy = ResultRecord("w_1_0", "w_1", "pure", 10, (), "w_1_0_r", url, 2 * len(LARGE))
    transfer.upload(copy, path)


def test_upload_goes_on_where_the_project_is(project, transfer, tmp_path):
    project.answer("/up", reply(size=70_000), reply())
    upload(project, transfer, tmp_path)
    question, rest = (asked.body for asked in project.asked)
    assert b"<get_file_size>w_1_0_r</get_file_size>" in question
    assert b"<offset>70000</offset>" in rest
    assert rest.endswith(LARGE[70_000:])


@pytest.mark.parametrize(
    ("more", "checksum"),
    [
        ("", f"<md5_cksum>{MD5_OF_LARGE}</md5_cksum>"),
        (
            "<takes_sha256>1</takes_sha256>",
            f"<sha256_cksum>{SHA256_OF_LARGE}</sha256_cksum>",
        ),
    ],
)
def test_checksum_is_the_one_that_the_project_takes(
    project, transfer, tmp_path, more, checksum
):
    project.answer("/up", reply(size=0, more=more), reply())
    upload(project, transfer, tmp_path)
    assert checksum.encode() in project.asked[1].body


def test_small_upload_is_sent_without_a_question(project, transfer, tmp_path):
    project.answer("/up", reply())
    upload(project, transfer, tmp_path, DATA)
    (asked,) = project.asked
    assert asked.body.endswith(DATA)


def test_size_that_a_project_makes_up_breaks_nothing(project, transfer, tmp_path):
    project.answer("/up", reply(size=10**15), reply())
    upload(project, transfer, tmp_path)
    assert f"<offset>{len(LARGE)}</offset>".encode() in project.asked[1].body


@pytest.mark.parametrize(
    ("answer", "final"),
    [
        (reply(-1), True),
        (reply(1), False),
        (Scripted(b"<data_server_reply></data_server_reply>"), False),
        (Scripted(status=404), False),  # as for BOINC's client: it may come back
        (Scripted(status=503), False),
    ],
)
def test_upload_is_given_up_only_when_the_project_says_so(
    project, transfer, tmp_path, answer, final
):
    project.answer("/up", answer)
    with pytest.raises(UnreachableError) as caught:
        upload(project, transfer, tmp_path, b"small")
    assert isinstance(caught.value, Refused) is final


@pytest.fixture
def hurried(project):
    made = Transfer(project.url, timeout_s=5, answer_s=0.5)
    yield made
    made.close()


DRIPPING = Scripted(bytes(10_000), drip_s=0.05)  # no single read waits for long


def test_answer_that_never_ends_is_given_up(project, hurried):
    project.answer("/", DRIPPING)
    with pytest.raises(UnreachableError, match="STO-X001"):
        hurried.scheduler_url()


def test_download_that_hardly_moves_is_given_up(project, hurried, target):
    project.answer("/d", DRIPPING)
    with pytest.raises(UnreachableError, match="STO-X001"):
        hurried.download(dataclasses.replace(file_at(project), nbytes=100), target)


def test_slow_answer_within_its_time_is_taken(project, transfer):
    body = page(project, "s").body
    project.answer("/", Scripted(body, drip_s=0.001))
    assert transfer.scheduler_url() == f"{project.url}s"


def page(project, name):
    link = f'<link rel="boinc_scheduler" href="{project.url}{name}">\n'
    return Scripted(f"<html>\n{link}</html>".encode())


class Calls:
    """A host's calls to a scripted project, on a clock of the test's."""

    def __init__(self, project, transfer, directory):
        self.now = 0.0
        settings = Settings(project.url, "k", backoff_s=(10.0, 40.0))
        self.ledger = Ledger(directory, project.url)
        self.caller = Caller(settings, self.ledger, transfer, clock=lambda: self.now)
        self.make = lambda host: request_of(host, settings, ())

    def call(self):
        _, answer = self.caller.call(self.make)
        self.caller.plan(answer, idle=False)
        return answer


@pytest.fixture
def calls(project, transfer, tmp_path):
    made = Calls(project, transfer, tmp_path / "state")
    yield made
    made.ledger.close()


def scheduler_reply(**fields):
    return Scripted(render_reply(SchedulerReply(**fields), "p"))


def test_project_that_moved_its_scheduler_is_found_by_its_page(project, calls):
    project.answer("/", page(project, "old"), page(project, "new"))
    project.answer("/old", scheduler_reply(), Scripted(status=404))
    project.answer("/new", scheduler_reply(host_id=5))
    calls.call()
    with pytest.raises(UnreachableError):
        calls.call()
    assert calls.call().host_id == 5
    paths = [asked.path for asked in project.asked]
    assert paths == ["/", "/old", "/old", "/", "/new"]


def test_project_that_says_it_is_down_is_called_again_after_a_pause(project, calls):
    project.answer("/", page(project, "s"))
    project.answer("/s", scheduler_reply(down=True), scheduler_reply(host_id=5))
    with pytest.raises(UnreachableError, match="STO-X001"):
        calls.call()
    assert calls.caller.due_in(reports=True) >= 5.0
    assert calls.call().host_id == 5


def test_sequence_number_grows_also_over_failed_calls(project, calls, tmp_path):
    project.answer("/", page(project, "s"))
    project.answer("/s", Scripted(status=503))
    for _ in range(3):
        with pytest.raises(UnreachableError):
            calls.call()
    assert calls.ledger.host.rpc_seqno == 3
    record = (tmp_path / "state" / "host.json").read_bytes()
    assert msgspec.json.decode(record)["rpc_seqno"] == 3


def test_pauses_after_failures_grow_and_end(project, calls):
    project.answer("/", Scripted(status=500))
    pauses = []
    for _ in range(6):
        with pytest.raises(UnreachableError):
            calls.call()
        pauses.append(calls.caller.due_in(reports=True))
    assert all(5.0 <= pause <= 40.0 for pause in pauses)
    assert pauses[-1] >= 20.0
    calls.caller.insist()
    assert calls.caller.is_due(reports=False)


def test_request_delay_holds_back_reports_too_and_is_bounded(project, calls):
    project.answer("/", page(project, "s"))
    project.answer("/s", scheduler_reply(request_delay=60.0), scheduler_reply())
    calls.call()
    assert not calls.caller.is_due(reports=True)
    calls.now = 61.0
    assert calls.caller.is_due(reports=True)
    calls.caller.plan(SchedulerReply(request_delay=1e9), idle=False)
    assert calls.caller.due_in(reports=True) == 24 * 3600.0


def test_reports_do_not_wait_for_the_next_delay(project, calls):
    project.answer("/", page(project, "s"))
    project.answer("/s", scheduler_reply(next_rpc_delay=900.0))
    calls.call()
    assert calls.caller.is_due(reports=True)
    assert not calls.caller.is_due(reports=False)
    calls.now = 901.0
    assert calls.caller.is_due(reports=False)
