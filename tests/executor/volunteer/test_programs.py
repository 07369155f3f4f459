"""The project's programs: fetched from a real server, signed, approved, or not started."""

from __future__ import annotations

import functools
import http.server
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from stoilo.core.boinc.codesign import md5_hex, render_boinc_public
from stoilo.core.boinc.messages import (
    AppVersion,
    FileInfo,
    ProgramFile,
    SchedulerReply,
    UserInfo,
)
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError, UnreachableError
from stoilo.core.types import Redundancy
from stoilo.executor.slot.executor import SlotExecutor
from stoilo.executor.verifier.optin import OptIn
from stoilo.executor.volunteer.client import Volunteer
from stoilo.executor.volunteer.ledger import Ledger, read_memory
from stoilo.executor.volunteer.optin_file import render_opt_in
from stoilo.executor.volunteer.programs import (
    Programs,
    ReleasedPrograms,
)
from stoilo.executor.volunteer.scheduler import Settings
from stoilo.executor.volunteer.transfer import Transfer
from stoilo.server.engines.embedded.engine import EmbeddedEngine
from stoilo.signer.boinc_keys import generate_boinc_key, sign_md5
from tests.support.engine import (
    BodyValidation,
    OutcomeRecorder,
    ProjectServer,
    make_spec,
)
from tests.support.programs import ProgramSigner

KEY, OTHER = generate_boinc_key(), generate_boinc_key()
SINGLE = Redundancy(
    min_quorum=1, target_results=1, max_error=3, max_total=4, max_success=4
)
LAUNCHER, VERIFIER = b"launcher", b"verifier's archive"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "l").write_bytes(LAUNCHER)
    (folder / "v").write_bytes(VERIFIER)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def signed(site, path, data, key=KEY, **changes):
    info = FileInfo(f"stoilo_{path}", f"{site}{path}", len(data), "")
    return ProgramFile(info, sign_md5(md5_hex(data), key), **changes)


def version(site, number=1, key=KEY):
    launcher = signed(site, "l", LAUNCHER, key, executable=True, main=True)
    archive = signed(site, "v", VERIFIER, open_name="stoilo-verifier.tar")
    return AppVersion("pure", number, "x86_64-pc-linux-gnu", (launcher, archive))


@pytest.fixture
def make(site, tmp_path):
    transfers = []

    def build(*versions, approve=None):
        transfers.append(Transfer(site))
        key = render_boinc_public(KEY.public)
        made = Programs(tmp_path, transfers[-1], lambda: key, approve)
        made.learn(versions or (version(site),))
        return made

    yield build
    for transfer in transfers:
        transfer.close()


def test_signed_program_is_fetched_and_executable(make):
    program = make().ready("pure")
    assert program.launcher.read_bytes() == LAUNCHER
    assert program.verifier.read_bytes() == VERIFIER
    assert program.launcher.stat().st_mode & 0o777 == 0o500


def test_program_signed_by_another_key_is_not_kept(make, site, tmp_path):
    programs = make(version(site, key=OTHER))
    with pytest.raises(TrustError, match="STO-X042"):
        programs.ready("pure")
    assert not (tmp_path / "programs" / "stoilo_l").exists()


def test_program_that_changed_on_the_disk_is_fetched_anew(make):
    programs = make()
    launcher = programs.ready("pure").launcher
    launcher.chmod(0o600)
    launcher.write_bytes(b"Launcher")
    with pytest.raises(TrustError, match="STO-X042"):
        programs.ready("pure")
    assert programs.ready("pure").launcher.read_bytes() == LAUNCHER


def test_versions_survive_a_restart_and_older_ones_do_not_return(make, site):
    make(version(site, 3))
    programs = make(replace(version(site, 2), files=()))
    assert programs.ready("pure").launcher.read_bytes() == LAUNCHER


def test_app_without_a_program_for_this_computer_is_named(make, site):
    programs = make(replace(version(site), app="numeric", platform="armv7-linux"))
    for app in ("pure", "numeric"):
        with pytest.raises(TrustError, match="STO-X043"):
            programs.ready(app)


def release_of(launcher, verifier):
    digests = {"launcher": launcher, "verifier": verifier}

    def part(name, platform):
        archive = SimpleNamespace(sha256=content_digest(digests[name]))
        return SimpleNamespace(archive=archive) if platform == "x86_64-linux" else None

    return SimpleNamespace(part=part)


def test_program_of_the_release_is_approved_and_asked_for_once_a_day(make):
    fetched, now = [], [0.0]

    def fetch():
        fetched.append(now[0])
        return release_of(LAUNCHER, VERIFIER)

    programs = make(approve=ReleasedPrograms(fetch, clock=lambda: now[0]).check)
    for now[0] in (0.0, 3600.0, 90_000.0):
        programs.ready("pure")
    assert fetched == [0.0, 90_000.0]


@pytest.mark.parametrize(
    "release", [release_of(b"other", VERIFIER), release_of(LAUNCHER, b"other")]
)
def test_signed_program_that_is_not_in_the_release_is_not_started(make, release):
    programs = make(approve=ReleasedPrograms(lambda: release).check)
    with pytest.raises(TrustError, match="STO-X043"):
        programs.ready("pure")


def test_release_out_of_reach_puts_the_program_off(make):
    def fetch():
        raise UnreachableError("STO-X001", "not now")

    programs = make(approve=ReleasedPrograms(fetch).check)
    with pytest.raises(UnreachableError):
        programs.ready("pure")


SCRIPT = b"""#!/bin/sh
name=$(sed -n 's:.*<result_name>\\(.*\\)</result_name>.*:\\1:p' init_data.xml)
printf '{"format":"stoilo-result/1","result":"%s","workunit":"w_1",' "$name" > result
printf '"disposition":"ran","frame_bytes":6}\\nanswer' >> result
printf 0 > boinc_finish_called
"""


@pytest.fixture
def project(tmp_path):
    engine = EmbeddedEngine(tmp_path / "engine")
    engine.outcomes = OutcomeRecorder()
    engine.start(BodyValidation(), engine.outcomes)
    with ProjectServer(engine) as server:
        server.engine = engine
        server.key = engine.accounts.ensure("a@example.org", engine.now()).weak_key
        yield server
    engine.close()


def make_volunteer(project, state):
    url, ledger = project.url, Ledger(state / "project", project.url)
    transfer = Transfer(url)
    programs = Programs(
        state / "project",
        transfer,
        lambda: ledger.memory.code_sign_key,
    )
    return Volunteer(
        Settings(url, project.key, own_program=False, backoff_s=(0.05, 0.3)),
        ledger,
        transfer,
        SlotExecutor(programs.ready, state, render_opt_in(OptIn())),
        on_app_versions=programs.learn,
    )


def test_copy_runs_by_the_program_that_the_project_sent(project, tmp_path, wait_until):
    signer = ProgramSigner()
    project.engine.set_programs([signer.program(SCRIPT)], signer.key)
    project.engine.create_workunits([make_spec("w_1", redundancy=SINGLE)])
    volunteer = make_volunteer(project, tmp_path / "state")
    thread = threading.Thread(target=volunteer.run)
    thread.start()
    try:
        wait_until(lambda: project.engine.outcomes.outcomes)
    finally:
        volunteer.stop()
        thread.join()
        volunteer.close()
    assert project.engine.outcomes.bodies["w_1"].endswith(b"\nanswer")
    key = read_memory(tmp_path / "state" / "project").code_sign_key
    assert key == signer.key.text
    assert list((tmp_path / "state" / "slots").iterdir()) == []


def test_programs_under_another_key_than_the_first_are_not_even_noted(
    project, tmp_path, site
):
    """A first contact is believed; from then on only the key of that day is."""
    thief, signer = ProgramSigner(), ProgramSigner()
    volunteer = make_volunteer(project, tmp_path / "state")
    directory = tmp_path / "state" / "project"
    reply = SchedulerReply(code_sign_key=signer.key.text)
    volunteer._take_programs(reply)
    user = UserInfo(1, "ann", 0, total_credit=5.0)
    evil = replace(
        reply,
        code_sign_key=thief.key.text,
        app_versions=(version(site, 9),),
        user=user,
    )
    volunteer._take_programs(evil)
    assert not (directory / "programs.json").exists()
    assert read_memory(directory).user == user  # the rest of the reply counts
    volunteer._take_programs(replace(evil, code_sign_key=""))  # the negative control
    assert (directory / "programs.json").exists()
    assert read_memory(directory).code_sign_key == signer.key.text
    volunteer.close()


def test_programs_of_what_is_no_level_are_not_kept(make, site, tmp_path):
    others = [replace(version(site), app=f"app{n}") for n in range(64)]
    made = make(version(site), *others)
    assert made.ready("pure")
    assert b"app1" not in (tmp_path / "programs.json").read_bytes()
