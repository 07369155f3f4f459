"""App versions: stored, offered to stock clients, replaced, refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_bench import BASE, EmbeddedBench

from stoilo.core.boinc.messages import ClientVersion
from stoilo.core.errors import TrustError, UsageError
from stoilo.server.engines.programs import CodeSignKey, FormerKey
from stoilo.signer.boinc_keys import sign_key_change
from tests.support.engine import make_spec
from tests.support.programs import LINUX, ProgramSigner

SIGNER = ProgramSigner()
CLIENT = ClientVersion(7, 20, 5)


@pytest.fixture
def bench(tmp_path, clock):
    made = EmbeddedBench(tmp_path / "engine", clock)
    yield made
    made.engine.close()


def offer(bench, *programs, key=SIGNER.key):
    bench.engine.set_programs(programs or (SIGNER.program(),), key)


def ask(bench, user=1, **fields):
    """One request of a stock client for eight copies."""
    fields = {
        "own_program": False,
        "client": CLIENT,
        "platforms": (LINUX,),
        "cpu_req_instances": 8.0,
        **fields,
    }
    return bench.request(user, **fields)


def make(bench, *apps):
    specs = [make_spec(f"w_{n}", app=app) for n, app in enumerate(apps or ("pure",))]
    bench.engine.create_workunits(specs)


def version_of(bench, user=1):
    bench.engine.create_workunits([make_spec(f"v_{user}")])
    return ask(bench, user).app_versions[0].version_num


def test_stock_client_gets_the_program_with_its_copies(bench):
    make(bench)
    offer(bench)
    reply = ask(bench)
    (version,) = reply.app_versions
    assert len(reply.results) == 1
    assert (version.app, version.platform) == ("pure", LINUX)
    launcher, verifier = version.files
    assert (launcher.main, launcher.executable, launcher.open_name) == (True, True, "")
    assert (verifier.main, verifier.open_name) == (False, "stoilo-verifier.tar")
    assert launcher.signature == SIGNER.program().launcher.signature


def test_program_is_served_under_an_address_nobody_can_guess(bench):
    make(bench)
    offer(bench)
    info = ask(bench).app_versions[0].files[0].info
    assert info.name == f"stoilo_launcher_{SIGNER.program().launcher.digest[:16]}"
    token = info.url.removeprefix(f"{BASE}download/")
    assert info.name not in info.url
    assert bench.engine.find_download(token).content == b"#!/bin/sh\n"


def test_every_level_gets_the_same_program(bench):
    make(bench, "pure", "numeric")
    offer(bench)
    reply = ask(bench, level="numeric")
    assert [one.app for one in reply.app_versions] == ["numeric", "pure"]
    assert reply.app_versions[0].files == reply.app_versions[1].files


def test_account_that_selected_nothing_gets_pure_only(bench):
    make(bench, "numeric", "pure", "tensor")
    offer(bench)
    assert [one.app for one in ask(bench).workunits] == ["pure"]


def test_host_with_its_own_program_gets_no_app_version(bench):
    make(bench)
    offer(bench)
    reply = bench.request(1, cpu_req_instances=1.0)
    assert reply.results
    assert (reply.app_versions, reply.code_sign_key) == ((), "")


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"platforms": ("windows_x86_64",)}, "windows_x86_64"),
        ({"platforms": ()}, "platform"),
        ({"client": ClientVersion(6, 12, 34)}, "BOINC 7"),
        ({"code_sign_key": ProgramSigner().key.text}, "code-sign key"),
    ],
)
def test_client_that_could_not_run_it_is_told_why_and_gets_nothing(bench, fields, word):
    make(bench)
    offer(bench)
    reply = ask(bench, **fields)
    assert (reply.results, reply.app_versions) == ((), ())
    assert word in reply.messages[0]


def test_alternative_platform_serves_when_the_first_has_no_program(bench):
    make(bench)
    offer(bench, SIGNER.program(platform="i686-pc-linux-gnu"))
    reply = ask(bench, platforms=(LINUX, "i686-pc-linux-gnu"))
    assert reply.app_versions[0].platform == "i686-pc-linux-gnu"


def test_project_without_programs_says_so(bench):
    make(bench)
    reply = ask(bench)
    assert (reply.results, reply.code_sign_key) == ((), "")
    assert "no program" in reply.messages[0]


def test_key_goes_out_only_to_who_has_none(bench):
    offer(bench)
    assert ask(bench).code_sign_key == SIGNER.key.text
    held = SIGNER.key.text.strip()
    assert ask(bench, code_sign_key=held).code_sign_key == ""


def test_new_key_is_vouched_for_by_the_one_that_the_client_holds(bench):
    new = ProgramSigner()
    vouched = sign_key_change(new.private.public, SIGNER.private)
    former = FormerKey(SIGNER.key.text, vouched)
    offer(bench, new.program(), key=CodeSignKey(new.key.text, (former,)))
    reply = ask(bench, code_sign_key=SIGNER.key.text)
    assert reply.code_sign_key == new.key.text
    assert reply.code_sign_key_signature == vouched
    assert reply.messages == ()


def test_same_files_keep_their_number_and_others_get_the_next(bench):
    offer(bench)
    first = version_of(bench)
    offer(bench)
    assert version_of(bench, 2) == first
    offer(bench, SIGNER.program(b"#!/bin/bash\n"))
    assert version_of(bench, 3) == first + 1


def test_number_never_comes_back_with_its_files(bench):
    offer(bench)
    first = version_of(bench)
    offer(bench, SIGNER.program(b"other"))
    offer(bench)
    assert version_of(bench, 2) == first + 2


def test_programs_outlive_a_restart(bench):
    offer(bench)
    first = version_of(bench)
    bench.restart()
    reply = ask(bench, 2)
    assert reply.app_versions[0].version_num == first
    token = reply.app_versions[0].files[0].info.url.rpartition("/")[2]
    assert bench.engine.find_download(token) is not None


def token_of_launcher(bench, user=1):
    make(bench)
    info = ask(bench, user).app_versions[0].files[0].info
    return info.url.rpartition("/")[2]


def test_former_files_stay_while_a_copy_may_need_them_and_go_then(bench):
    offer(bench)
    token = token_of_launcher(bench)
    newer = SIGNER.program(b"newer")
    offer(bench, newer)
    assert bench.engine.find_download(token) is not None
    bench.engine.cancel("w_0")
    bench.settle()
    bench.pass_time(10)
    offer(bench, newer)
    assert bench.engine.find_download(token) is None


def test_withdrawn_programs_are_offered_no_more(bench):
    offer(bench)
    bench.engine.set_programs((), CodeSignKey())
    make(bench)
    reply = ask(bench)
    assert (reply.results, reply.code_sign_key) == ((), "")


BAD = {
    "signature of another file": lambda good: replace(
        good, verifier=replace(good.verifier, signature=good.launcher.signature)
    ),
    "signature of another key": lambda good: replace(
        good, launcher=ProgramSigner().sign(b"#!/bin/sh\n")
    ),
    "no signature": lambda good: replace(
        good, launcher=replace(good.launcher, signature="")
    ),
    "other bytes": lambda good: replace(
        good, launcher=replace(good.launcher, source=b"planted")
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_program_is_refused_and_the_former_stays(bench, name):
    offer(bench)
    with pytest.raises(TrustError, match=r"STO-(K076|E002)"):
        offer(bench, BAD[name](SIGNER.program(b"#!/bin/sh\n", b"newer")))
    assert version_of(bench) == 100


def test_change_of_key_that_nobody_signed_is_refused(bench):
    new = ProgramSigner()
    forged = FormerKey(SIGNER.key.text, SIGNER.program().launcher.signature)
    with pytest.raises(TrustError, match="STO-K076"):
        offer(bench, new.program(), key=CodeSignKey(new.key.text, (forged,)))


@pytest.mark.parametrize("platforms", [("a", "a"), ("../x",), ("",)])
def test_unusable_platforms_are_refused(bench, platforms):
    programs = [SIGNER.program(platform=one) for one in platforms]
    with pytest.raises(UsageError, match="STO-E001"):
        bench.engine.set_programs(programs, SIGNER.key)
