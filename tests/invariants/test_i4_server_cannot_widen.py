"""I4: nothing that a server sends, and nothing that it can write, widens the opt-in."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from pathlib import Path

import pytest

from stoilo.core.boinc.messages import SchedulerReply, Wishes
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.executor.verifier.optin import LEVEL_ORDER
from stoilo.executor.volunteer import main as volunteer
from stoilo.executor.volunteer.ledger import Ledger, read_memory
from stoilo.executor.volunteer.scheduler import (
    Settings,
    key_after,
    memory_after,
    request_of,
)
from stoilo.executor.volunteer.scheduler_rpc import parse_reply, render_request
from stoilo.sandbox.process.supervisor import zygote_command, zygote_environment
from stoilo.testing.deployment import Deployment
from tests.support.wire import RawClient

PLANTED = 'max_level = "gpu"\n'
LONE = pb.RedundancyOptions(
    min_quorum=1,
    target_results=1,
    max_error=1,
    max_total=1,
    max_success=1,
    delay_bound_s=600,
)
ARRAYS = b"import numpy as np\ndef task(d):\n    return float(np.ones(3).sum())\n"
HOSTILE_WORDS = """<scheduler_reply>
<global_preferences><max_level>gpu</max_level><run_on_batteries/></global_preferences>
<project_preferences><project_specific><max_level>gpu</max_level><root>x</root>
<jail>off</jail></project_specific></project_preferences>
<max_level>gpu</max_level><root>http://evil.example/root.json</root>
<app_version><app_name>gpu</app_name><cmdline>--max-level gpu --no-jail</cmdline>
<env>STOILO_MAX_LEVEL=gpu</env></app_version>
<code_sign_key>0000</code_sign_key>
</scheduler_reply>"""


def planted_environment(home: Path) -> dict[str, str]:
    """Return an environment that asks for everything, and files that do."""
    for folder in (
        home,
        home / ".config" / "stoilo",
        home / "project",
        home / "executor",
    ):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "optin.toml").write_text(PLANTED)
        (folder / "init_data.xml").write_text(HOSTILE_WORDS)
    wishes = dict.fromkeys(
        ("STOILO_MAX_LEVEL", "STOILO_VOLUNTEER_MAX_LEVEL", "STOILO_LEVEL"), "gpu"
    )
    places = dict.fromkeys(
        ("STOILO_OPTIN", "STOILO_OPT_IN", "STOILO_ROOT"), str(home / "optin.toml")
    )
    off = dict.fromkeys(("STOILO_NO_SANDBOX", "STOILO_JAIL", "STOILO_DEBUG"), "1")
    homes = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    return dict(os.environ) | wishes | places | off | homes


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A client of a project with one careful volunteer, and how to start a generous one."""
    home = tmp_path_factory.mktemp("i4")
    with Deployment(home / "data") as deployment:
        assert deployment.line is not None
        asked = planted_environment(home / "careful")
        careful = deployment.attach(
            "careful@example.org", home / "careful", max_level="", environ=asked
        )
        with RawClient(Path(deployment.line.connection)) as made:
            yield made, lambda: deployment.attach("other@example.org", home / "other")
        careful.terminate()
        assert careful.wait() == 0
        assert "Traceback" not in (home / "careful" / "volunteer.log").read_text()


def test_planted_files_and_variables_do_not_raise_the_opt_in(project):
    """The careful host asks for nothing above `pure`, and is sent nothing above it."""
    client, start_generous = project
    arrays = client.submit(task_module=ARRAYS, redundancy=LONE)
    pure = client.submit(redundancy=LONE)
    assert client.wait(pure).state == "succeeded"
    waiting = client.poll(arrays)
    assert [copy.state for copy in waiting.copies] == ["unsent"]
    assert "0 attached" in waiting.explanation
    process = start_generous()  # the negative control: the task itself is sound
    answer = client.wait(arrays)
    process.terminate()
    process.wait()
    assert answer.state == "succeeded"


def test_scheduler_reply_has_no_word_for_the_opt_in():
    """Preferences and key are kept as text; command lines and all else are not read."""
    reply = parse_reply(HOSTILE_WORDS.encode(), "http://p/")
    kept = dataclasses.replace(
        reply, code_sign_key="", project_preferences="", global_preferences=""
    )
    assert kept == SchedulerReply()


def test_preferences_of_a_reply_change_no_wish(tmp_path):
    """What a volunteer asks for comes from his opt-in, whatever the project told before."""
    before = Settings("http://p/", "k", wishes=Wishes(max_level="pure"))
    ledger = Ledger(tmp_path, "http://p/")
    reply = parse_reply(HOSTILE_WORDS.encode(), "http://p/")
    with pytest.raises(TrustError, match="STO-X040"):
        key_after("", reply)
    with contextlib.closing(ledger):
        ledger.save_memory(memory_after(ledger.memory, reply, "0000"))
    memory = read_memory(tmp_path)
    assert "gpu" in memory.preferences  # the control: it was told and remembered
    key = memory.code_sign_key
    request = request_of(ledger.host, before, (), code_sign_key=key)
    assert request.wishes == before.wishes
    assert b"gpu" not in render_request(request)


@pytest.mark.parametrize("flag", ["--root", "--max-level", "--opt-in"])
def test_frozen_executor_has_no_switch(monkeypatch, flag, capsys):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    words = ["--project", "http://p/", "--key", "k", "--state", "s"]
    with pytest.raises(SystemExit):
        volunteer._parser().parse_args([*words, flag, "gpu"])
    assert "unrecognized arguments" in capsys.readouterr().err


def test_unfrozen_executor_has_them():
    """The negative control of the test above."""
    words = ["--project", "http://p/", "--key", "k", "--state", "s", "--root", "r"]
    more = ["--max-level", "pure", "--opt-in", "o"]
    assert volunteer._parser().parse_args([*words, *more]).root


def test_typed_level_opens_nothing_without_a_file(monkeypatch, tmp_path):
    """argv never selects a level: without a local file the opt-in is `pure`."""
    monkeypatch.setattr(volunteer, "default_files", tuple)
    for level in LEVEL_ORDER:
        chosen = volunteer.choose_opt_in(tmp_path, max_level=level)
        assert chosen.max_level == "pure"


@pytest.mark.parametrize("place", ["project", "executor", "project/slots"])
def test_named_file_where_a_server_can_write_is_refused(monkeypatch, tmp_path, place):
    monkeypatch.setattr(volunteer, "default_files", tuple)
    file = tmp_path / place / "optin.toml"
    file.parent.mkdir(parents=True)
    file.write_text(PLANTED)
    file.chmod(0o600)
    with pytest.raises(UsageError, match="STO-A060"):
        volunteer.choose_opt_in(tmp_path, file=file)
    good = tmp_path / "optin.toml"  # the negative control: its place was the reason
    file.rename(good)
    assert volunteer.choose_opt_in(tmp_path, file=good).max_level == "gpu"


def test_zygote_takes_no_word_from_arguments_or_environment(monkeypatch):
    before = zygote_environment(), zygote_command()
    for name in ("PYTHONPATH", "LD_PRELOAD", "PYTHONSTARTUP", "STOILO_NO_SANDBOX"):
        monkeypatch.setenv(name, "/tmp/evil")
    monkeypatch.setattr(sys, "argv", ["stoilo", "--no-jail"])
    assert (zygote_environment(), zygote_command()) == before
    assert not {"PYTHONPATH", "LD_PRELOAD"} & set(zygote_environment())
