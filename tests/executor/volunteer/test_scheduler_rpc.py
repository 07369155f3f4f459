from __future__ import annotations

import re
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.boinc.messages import (
    AppVersion,
    ClientVersion,
    FileInfo,
    FileRef,
    HostInfo,
    OtherResult,
    ProgramFile,
    ReportedResult,
    ResultInfo,
    SchedulerReply,
    SchedulerRequest,
    UploadInfo,
    UserInfo,
    WorkunitInfo,
)
from stoilo.core.errors import TrustError, UnreachableError
from stoilo.executor.volunteer.addresses import check_name, find_scheduler
from stoilo.executor.volunteer.scheduler_rpc import (
    CLIENT_VERSION,
    PLATFORM,
    parse_reply,
    render_request,
)
from stoilo.executor.volunteer.transfer import (
    parse_upload_reply,
    render_size_query,
    render_upload_head,
    takes_sha256,
)
from stoilo.server.engines.embedded.web.replies import render_reply, render_upload_reply
from stoilo.server.engines.embedded.web.requests import (
    SizeQuery,
    parse_request,
    parse_upload,
)
from stoilo.server.engines.embedded.workunits.uploads import UploadHead

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
            unique_by=lambda report: report.name,  # a copy is reported once
        ).map(tuple),
        other_results=st.lists(st.builds(OtherResult, NAMES), max_size=3).map(tuple),
        own_program=st.booleans(),
        client=st.just(ClientVersion(7, 20, 5)),
        platforms=st.just(("x86_64-pc-linux-gnu",)),
    )
)
def test_request_reaches_the_project_as_it_was_meant(request_):
    assert parse_request(render_request(request_)) == request_


FILE = FileInfo(
    "a" * 64, f"{URL}download/x", 5, "0" * 32, sticky=True, content=b"\0<&>\xff"
)
CONTENT = b64encode(FILE.content)
UPLOAD = UploadInfo("w_1_0_r1_0", f"{URL}upload/y", 1000)
WORKUNIT = WorkunitInfo(
    "w_1", "pure", 1e9, 1e14, (FileRef("a" * 64, "arguments"),), 5e8, 1e9
)
SIGNED = f"{'ab' * 32}\n.\n"
LAUNCHER = ProgramFile(
    FileInfo("l_1", f"{URL}download/l", 5, "1" * 32), SIGNED, executable=True, main=True
)
ARCHIVE = ProgramFile(
    FileInfo("v_1.tar", f"{URL}download/v", 6, "2" * 32), SIGNED, open_name="v.tar"
)
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
    down=True,
    delete_files=("e" * 64,),
    user=UserInfo(5, "ann <&>", 7, 1.5, 1.25),
    project_preferences="<project_specific><max_level>pure</max_level></project_specific>",
    code_sign_key=f"1024\n{'cd' * 32}\n.\n",
    code_sign_key_signature=f"{'ab' * 32}\n.\n",
    app_versions=(AppVersion("pure", 7, PLATFORM, (LAUNCHER, ARCHIVE)),),
)


def test_reply_reaches_the_volunteer_as_it_was_meant():
    assert parse_reply(render_reply(FULL, "p & q"), URL) == FULL


def test_entities_precede_those_who_name_them():
    text = render_reply(FULL, "p").decode()
    places = [
        text.index(tag) for tag in ("<app>", "<file_info>", "<workunit>", "<result>")
    ]
    assert places == sorted(places)
    assert "<max_nbytes>1000</max_nbytes>" in text  # missing means 0 to a real client
    assert "<report_deadline>1800000000</report_deadline>" in text


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
    "content is none": REPLY.replace(CONTENT, b"a&lt;b"),
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
    with pytest.raises(UnreachableError, match="STO-X001"):
        find_scheduler(page, URL)


def test_scheduler_of_another_server_is_refused():
    with pytest.raises(TrustError, match="STO-X001"):
        find_scheduler(b"<scheduler>http://10.0.0.1/x</scheduler>", URL)


def test_upload_head_reaches_the_project_as_it_was_meant():
    head = render_upload_head(UPLOAD, nbytes=900, checksum="a" * 32, offset=100)
    assert head.endswith(b"<data>\n")
    assert parse_upload(head) == UploadHead(UPLOAD.name, 900, "a" * 32, 100)
    assert parse_upload(render_size_query("x_0")) == SizeQuery("x_0")


def test_checksum_of_a_project_of_ours_is_the_sha256():
    head = render_upload_head(UPLOAD, nbytes=900, checksum="b" * 64, offset=0)
    assert parse_upload(head) == UploadHead(UPLOAD.name, 900, "b" * 64, 0)
    assert takes_sha256(render_upload_reply(0, size=17))
    assert not takes_sha256(
        b"<data_server_reply><status>0</status></data_server_reply>"
    )


def test_upload_reply_reaches_the_volunteer_as_it_was_meant():
    assert parse_upload_reply(render_upload_reply(0, size=17)) == (0, 17, "")
    assert parse_upload_reply(render_upload_reply(-1, why="a < b")) == (-1, 0, "a < b")
    assert parse_upload_reply(b"<data_server_reply></data_server_reply>")[0] == 1


def test_request_tells_all_that_a_stock_client_tells():
    host = HostInfo(vendor="GenuineIntel", model="i7 [x]", memory_bytes=8e9)
    text = render_request(
        SchedulerRequest(
            "key",
            1,
            2,
            "c" * 32,
            client=CLIENT_VERSION,
            platforms=("x86_64-pc-linux-gnu", "i686-pc-linux-gnu"),
            host=host,
            code_sign_key="1024\nab\n.\n",
            sticky_files=("f" * 64,),
            own_program=True,
            takes_content=True,
            other_results=(OtherResult("w_1_0", 0.25),),
        )
    ).decode()
    for part in (
        "<core_client_major_version>7</core_client_major_version>",
        "<core_client_minor_version>20</core_client_minor_version>",
        "<platform_name>x86_64-pc-linux-gnu</platform_name>",
        "<alt_platform><name>i686-pc-linux-gnu</name></alt_platform>",
        "<p_vendor>GenuineIntel</p_vendor>",
        "<m_nbytes>8000000000.0</m_nbytes>",
        "<code_sign_key>\n1024\nab\n.\n</code_sign_key>",
        f"<file_info><name>{'f' * 64}</name></file_info>",
        "<stoilo_own_program>1</stoilo_own_program>",
        "<stoilo_takes_content>1</stoilo_takes_content>",
        "<fraction_done>0.250000</fraction_done>",
    ):
        assert part in text
    assert "os_name" not in text  # what is not known is not said


SIGNATURE = f"{'ab' * 32}\n" * 4 + ".\n"
PROGRAM = f"""
<code_sign_key>
1024
{"cd" * 32}
.
</code_sign_key>
<code_sign_key_signature>
{SIGNATURE}</code_sign_key_signature>
<userid>5</userid><user_name>ann</user_name><user_total_credit>12.5</user_total_credit>
<project_preferences><project_specific><max_level>pure</max_level></project_specific>
</project_preferences>
<delete_file_info>{"d" * 64}</delete_file_info>
<project_is_down/>
<app><name>pure</name></app>
<file_info><name>stoilo_launcher_1</name><url>{URL}download/l</url><executable/>
<file_signature>
{SIGNATURE}</file_signature><nbytes>5.000</nbytes></file_info>
<app_version><app_name>pure</app_name><version_num>7</version_num>
<file_ref><file_name>stoilo_launcher_1</file_name><main_program/></file_ref></app_version>
"""


def in_reply(inner):
    return f"<scheduler_reply>{inner}</scheduler_reply>".encode()


def test_reply_of_a_stock_server_is_read_whole():
    reply = parse_reply(in_reply(PROGRAM), URL)
    (version,) = reply.app_versions
    (file,) = version.files
    assert (version.app, version.version_num) == ("pure", 7)
    assert (file.main, file.executable, file.info.nbytes) == (True, True, 5)
    assert (file.signature, reply.code_sign_key_signature) == (SIGNATURE, SIGNATURE)
    assert reply.code_sign_key == f"1024\n{'cd' * 32}\n.\n"
    assert reply.user == UserInfo(5, "ann", 0, total_credit=12.5)
    assert reply.project_preferences == (
        "<project_specific><max_level>pure</max_level></project_specific>"
    )
    assert (reply.delete_files, reply.down, reply.files) == (("d" * 64,), True, ())


@pytest.mark.parametrize(
    "inner",
    [
        PROGRAM.replace("<file_signature>", "<x>").replace("</file_signature>", "</x>"),
        PROGRAM.replace("5.000", "-5"),
        PROGRAM.replace("stoilo_launcher_1", "../launcher"),
        PROGRAM.replace(f"{URL}download/l", "http://10.0.0.1/l"),
        PROGRAM.replace("ab" * 32, "ab" * 3000),
        "<delete_file_info>../../x</delete_file_info>",
        "<delete_file_info>x</delete_file_info>" * 1001,
        "<project_preferences>" + "<a>x</a>" * 9000 + "</project_preferences>",
        "<app_version><app_name>a</app_name><file_ref></file_ref></app_version>",
    ],
)
def test_bad_part_of_a_reply_refuses_all_of_it(inner):
    with pytest.raises(TrustError, match="STO-X030"):
        parse_reply(in_reply(inner), URL)


PIECES = st.sampled_from(re.findall(r"<[^<>]+>|[^<>]+", PROGRAM))


@given(st.lists(PIECES, max_size=60).map("".join))
def test_any_order_of_a_replys_pieces_ends_in_our_error_or_a_value(inner):
    try:
        parse_reply(in_reply(inner), URL)
    except TrustError as error:
        assert error.code == "STO-X030"


def test_message_and_user_name_are_cut():
    inner = (
        f"<user_name>{'n' * 9000}</user_name>" + f"<message>{'m' * 9000}</message>" * 99
    )
    reply = parse_reply(in_reply(inner), URL)
    assert reply.user is not None
    assert len(reply.user.name) == 254
    assert {len(text) for text in reply.messages} == {500}
    assert len(reply.messages) == 20
