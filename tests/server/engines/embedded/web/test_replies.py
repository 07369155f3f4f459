"""Scheduler replies: what a 7.20.5 client needs, in the order that it needs it."""

from __future__ import annotations

import pytest

from stoilo.core.boinc.messages import (
    AppVersion,
    FileInfo,
    FileRef,
    ProgramFile,
    ResultInfo,
    SchedulerReply,
    UploadInfo,
    UserInfo,
    WorkunitInfo,
)
from stoilo.core.boinc.xml import XmlBounds, parse_xml
from stoilo.server.engines.embedded.web.replies import render_reply
from tests.support.programs import LINUX, ProgramSigner

URL = "http://127.0.0.1:8080/"
SIGNER = ProgramSigner()
LAUNCHER = ProgramFile(
    FileInfo("stoilo_launcher_0", f"{URL}download/l", 9, "1" * 32),
    SIGNER.program().launcher.signature,
    executable=True,
    main=True,
)
VERIFIER = ProgramFile(
    FileInfo("stoilo_verifier_0.tar", f"{URL}download/v", 9, "2" * 32),
    SIGNER.program().verifier.signature,
    open_name="stoilo-verifier.tar",
)
FULL = SchedulerReply(
    host_id=7,
    acks=("b_0", "b_1"),
    aborts=("c_0",),
    files=(FileInfo("a" * 64, f"{URL}download/x", 5, "0" * 32, sticky=True),),
    uploads=(UploadInfo("w_1_0_r1_0", f"{URL}upload/y", 1000),),
    workunits=(
        WorkunitInfo("w_1", "pure", 1e9, 1e14, (FileRef("a" * 64, "arguments"),), 5e8),
    ),
    results=(ResultInfo("w_1_0", "w_1", 1_800_000_000, "w_1_0_r1_0"),),
    next_rpc_delay=1.5,
    request_delay=2.0,
    messages=("Hello <b> & good-bye",),
    app_versions=(AppVersion("pure", 103, LINUX, (LAUNCHER, VERIFIER)),),
    code_sign_key=SIGNER.key.text,
    code_sign_key_signature=SIGNER.program().launcher.signature,
    delete_files=("old",),
    user=UserInfo(3, "Ada", 1_700_000_000, 12.5, 6.0),
    project_preferences="<project_specific><max_level>pure</max_level></project_specific>",
    global_preferences="<mod_time>1</mod_time>",
    aborts_unstarted=("d_0",),
)
TEXT = render_reply(FULL, "p & q").decode()
ROOT = parse_xml(TEXT.encode(), XmlBounds(1_000_000))


@pytest.mark.parametrize(
    ("tag", "text"),
    [
        ("project_name", "p & q"),
        ("hostid", "7"),
        ("message", "Hello <b> & good-bye"),
        ("delete_file_info", "old"),
        ("request_delay", "2.000"),
        ("next_rpc_delay", "1.500"),
        ("userid", "3"),
        ("user_name", "Ada"),
        ("user_create_time", "1700000000"),
        ("user_total_credit", "12.500000"),
        ("host_total_credit", "6.000000"),
        ("code_sign_key", SIGNER.key.text.strip()),
        ("code_sign_key_signature", SIGNER.program().launcher.signature.strip()),
        ("verify_files_on_app_start", ""),
    ],
)
def test_reply_says(tag, text):
    found = ROOT.find(tag)
    assert found is not None
    assert found.text == text


@pytest.mark.parametrize(
    ("tag", "names"),
    [
        ("result_ack", ["b_0", "b_1"]),
        ("result_abort", ["c_0"]),
        ("result_abort_if_not_started", ["d_0"]),
    ],
)
def test_orders_name_their_copies(tag, names):
    assert [item.string("name") for item in ROOT.every(tag)] == names


def test_entities_precede_those_who_name_them():
    order = [child.tag for child in ROOT.children]
    kinds = ["code_sign_key", "app", "app_version", "workunit", "result"]
    places = [order.index(kind) for kind in kinds]
    assert places == sorted(places)
    infos = {item.string("name"): at for at, item in enumerate(ROOT.children)}
    for tag in ("app_version", "workunit", "result"):
        (user,) = ROOT.every(tag)
        for ref in user.every("file_ref"):
            assert infos[ref.string("file_name")] < order.index(tag)


def test_app_version_has_its_signed_files():
    (version,) = ROOT.every("app_version")
    assert version.string("platform") == LINUX
    assert version.string("api_version").startswith("7.")  # else no memory-mapped file
    launcher, verifier = version.every("file_ref")
    assert launcher.find("main_program") is not None
    assert verifier.string("open_name") == "stoilo-verifier.tar"
    info = ROOT.every("file_info")[0]
    assert info.find("executable") is not None
    assert info.string("file_signature", longest=600) == LAUNCHER.signature.strip()


def test_copy_names_the_version_that_it_runs():
    (result,) = ROOT.every("result")
    assert (result.string("platform"), result.string("version_num")) == (LINUX, "103")
    assert result.integer("report_deadline") == 1_800_000_000
    assert result.find("report_immediately") is not None


def test_bounds_are_said_only_where_there_are_some():
    (workunit,) = ROOT.every("workunit")
    assert workunit.number("rsc_memory_bound") == 5e8
    assert workunit.find("rsc_disk_bound") is None
    assert workunit.number("rsc_fpops_bound") == 1e14


def test_output_file_has_a_size_and_where_to_send_it():
    output = next(item for item in ROOT.every("file_info") if item.find("upload_url"))
    assert (output.integer("max_nbytes"), output.find("url")) == (1000, None)


def test_preferences_stay_elements():
    preferences = ROOT.find("project_preferences")
    assert preferences is not None
    assert preferences.find("project_specific") is not None


def test_empty_reply_orders_nothing():
    root = parse_xml(render_reply(SchedulerReply(), "p"), XmlBounds(10_000))
    assert {item.tag for item in root.children} == {
        "project_name",
        "verify_files_on_app_start",
    }


def test_project_that_is_down_says_so():
    assert b"<project_is_down/>" in render_reply(SchedulerReply(down=True), "p")


def test_lines_of_a_key_stand_alone():
    lines = TEXT.splitlines()
    begin, end = lines.index("<code_sign_key>"), lines.index("</code_sign_key>")
    assert "\n".join(lines[begin + 1 : end]) == SIGNER.key.text.strip()
