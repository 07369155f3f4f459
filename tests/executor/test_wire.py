from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError, UnreachableError
from stoilo.executor.messages import (
    FileInfo,
    FileRef,
    OtherResult,
    ReportedResult,
    ResultInfo,
    SchedulerReply,
    SchedulerRequest,
    UploadInfo,
    WorkunitInfo,
)
from stoilo.executor.wire import (
    check_name,
    find_scheduler,
    parse_reply,
    parse_upload_reply,
    render_request,
    render_size_query,
    render_upload_head,
)
from stoilo.server.engines.embedded.xml import (
    SizeQuery,
    UploadHead,
    parse_request,
    parse_upload,
    render_reply,
    render_upload_reply,
)

URL = "http://127.0.0.1:8080/"
NAMES = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_-]{0,30}", fullmatch=True)
NUMBERS = st.integers(0, 10**12)
TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"]),
    max_size=30,
)


@given(
    st.builds(
        SchedulerRequest,
        authenticator=TEXT,
        host_id=NUMBERS,
        rpc_seqno=NUMBERS,
        cpid=st.from_regex(r"[0-9a-f]{32}", fullmatch=True),
        cpu_req_secs=st.integers(0, 1000).map(float),
        cpu_req_instances=st.integers(0, 1000).map(float),
        dont_send_work=st.booleans(),
        ncpus=st.integers(1, 4096),
        wait_s=st.integers(0, 10).map(float),
        results=st.lists(
            st.builds(
                ReportedResult,
                NAMES,
                st.integers(0, 6),
                st.integers(-200, 200),
                st.just(0.0),
                st.just(1.0),
                TEXT,
            ),
            max_size=3,
        ).map(tuple),
        other_results=st.lists(st.builds(OtherResult, NAMES), max_size=3).map(tuple),
    )
)
def test_request_reaches_the_project_as_it_was_meant(request_):
    assert parse_request(render_request(request_)) == request_


FILE = FileInfo("a" * 64, f"{URL}download/x", 5, "0" * 32, sticky=True)
UPLOAD = UploadInfo("w_1_0_r1_0", f"{URL}upload/y", 1000)
WORKUNIT = WorkunitInfo("w_1", "pure", 1e9, 1e14, (FileRef("a" * 64, "arguments"),))
RESULT = ResultInfo("w_1_0", "w_1", 1_800_000_000, "w_1_0_r1_0")
FULL = SchedulerReply(
    host_id=7,
    acks=("b_0",),
    aborts=("c_0",),
    aborts_unstarted=("d_0",),
    files=(FILE,),
    uploads=(UPLOAD,),
    workunits=(WORKUNIT,),
    results=(RESULT,),
    next_rpc_delay=1.5,
    request_delay=2.0,
    messages=("Hello <b> & good-bye",),
    waits=True,
)


def test_reply_reaches_the_volunteer_as_it_was_meant():
    assert parse_reply(render_reply(FULL, "p & q"), URL) == FULL


def test_entities_precede_those_who_name_them():
    text = render_reply(FULL, "p").decode()
    places = [
        text.index(tag)
        for tag in ("<app>", "<app_version>", "<file_info>", "<workunit>", "<result>")
    ]
    assert places == sorted(places)
    assert "<max_nbytes>1000</max_nbytes>" in text  # missing means 0 to a real client
    assert "<report_deadline>1800000000</report_deadline>" in text
    assert "<api_version>7." in text


REPLY = render_reply(FULL, "p")
BAD_REPLIES = {
    "empty": b"",
    "not closed": REPLY[:-20],
    "too large": b"<scheduler_reply>" + b" " * 5_000_000,
    "other root": b"<html></html>",
    "name is a path": REPLY.replace(b"w_1_0_r1_0", b"../../x"),
    "name with slash": REPLY.replace(b"<name>w_1_0<", b"<name>a/b<"),
    "hidden name": REPLY.replace(b"<name>w_1_0<", b"<name>.ssh<"),
    "percent": REPLY.replace(b"<name>w_1_0<", b"<name>a%2fb<"),
    "unknown workunit": REPLY.replace(b"<wu_name>w_1<", b"<wu_name>w_2<"),
    "unknown file": REPLY.replace(b"<file_name>aaaa", b"<file_name>bbbb"),
    "file without size": re.sub(rb"<nbytes>\d+</nbytes>", b"", REPLY),
    "file without md5": REPLY.replace(b"0" * 32, b"x"),
    "other host": REPLY.replace(b"127.0.0.1:8080/download", b"192.168.0.1/download"),
    "other port": REPLY.replace(b"127.0.0.1:8080/upload", b"127.0.0.1:22/upload"),
    "file url": REPLY.replace(b"http://127.0.0.1:8080/download", b"file:///etc"),
    "credentials": REPLY.replace(
        b"http://127.0.0.1:8080/d", b"http://a@127.0.0.1:8080/d"
    ),
    "control in url": REPLY.replace(b"/download/x", b"/download/x&#10;y"),
    "deadline nan": REPLY.replace(b"1800000000", b"nan"),
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_bad_reply_is_refused_whole(name):
    with pytest.raises(TrustError, match="STO-X030"):
        parse_reply(BAD_REPLIES[name], URL)


@given(st.binary(max_size=400))
def test_any_bytes_as_reply_end_in_our_error_or_a_value(data):
    try:
        parse_reply(data, URL)
        parse_upload_reply(data)
    except TrustError as error:
        assert error.code == "STO-X030"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a..b", "/x", "a/b", "a\\b", "a%b", "a b", "x" * 201, "-\n"]
)
def test_name_that_is_no_file_name_is_refused(name):
    with pytest.raises(TrustError):
        check_name(name)


def test_scheduler_is_found_in_both_spellings():
    link = b'<html>\n<link rel="boinc_scheduler" href="http://127.0.0.1:8080/s">\n'
    assert find_scheduler(link, URL) == f"{URL}s"
    assert find_scheduler(b"<scheduler>/cgi</scheduler>", URL) == f"{URL}cgi"


@pytest.mark.parametrize("page", [b"", b"<html></html>", b"<scheduler></scheduler>"])
def test_master_page_without_scheduler_is_unreachable(page):
    with pytest.raises(UnreachableError, match="STO-X002"):
        find_scheduler(page, URL)


def test_scheduler_of_another_server_is_refused():
    with pytest.raises(TrustError, match="STO-X002"):
        find_scheduler(b"<scheduler>http://10.0.0.1/x</scheduler>", URL)


def test_upload_head_reaches_the_project_as_it_was_meant():
    head = render_upload_head(UPLOAD, nbytes=900, md5="a" * 32, offset=100)
    assert head.endswith(b"<data>\n")
    assert parse_upload(head) == UploadHead(UPLOAD.name, 900, "a" * 32, 100)
    assert parse_upload(render_size_query("x_0")) == SizeQuery("x_0")


def test_upload_reply_reaches_the_volunteer_as_it_was_meant():
    assert parse_upload_reply(render_upload_reply(0, size=17)) == (0, 17, "")
    assert parse_upload_reply(render_upload_reply(-1, why="a < b")) == (-1, 0, "a < b")
    assert parse_upload_reply(b"<data_server_reply></data_server_reply>")[0] == 1
