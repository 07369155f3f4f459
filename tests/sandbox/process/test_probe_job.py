"""`stoilo sandbox probe`: the kernel layer alone, by the contract of design §7."""

import json
import subprocess
import sys

import pytest

from stoilo.core.types import RunLayer, RunStatus

KEYS = {"status", "value", "error", "code", "layer", "output", "limit", "usage"}


def run_cli(tmp_path, source, *options):
    path = tmp_path / "program.py"
    path.write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "stoilo", "sandbox", "probe", path, "--json", *options],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    lines = done.stdout.splitlines()
    return done.returncode, json.loads(lines[-1]) if lines else None, done.stderr


@pytest.mark.parametrize(
    ("source", "status", "layer", "code"),
    [
        ("print(__name__)", "ok", None, ""),
        ("raise SystemExit", "ok", None, ""),
        ("import sys; sys.exit(0)", "ok", None, ""),
        ("import os; os._exit(0)", "ok", None, ""),
        ("import sys; sys.exit('no')", "user_error", "language", "STO-G200"),
        ("import os; os._exit(2)", "user_error", "language", "STO-S021"),
        ("1 / 0", "user_error", "language", "STO-G200"),
        ("raise KeyboardInterrupt", "user_error", "language", "STO-G200"),
        ("import json", "user_error", "language", "STO-S025"),
        ("def f(:", "refused", "gate", "STO-P023"),
        ("x = '\0'", "refused", "gate", "STO-P023"),
        ("raise MemoryError", "killed", "limits", "STO-S013"),
        ("import os; os.fork()", "killed", "kernel", "STO-S010"),
        ("import os; os.abort()", "user_error", "language", "STO-S020"),
    ],
)
def test_program_ends_as_the_contract_says(probe, source, status, layer, code):
    outcome = probe(source)
    assert (outcome.status, outcome.layer, outcome.code) == (status, layer, code)


def test_sys_os_time_errno_are_always_there(probe):
    outcome = probe(
        "import sys, os, time, errno\nimport os.path\nprint(os.getpid() > 0)"
    )
    assert outcome.output == "True\n"


def test_names_of_another_alphabet_are_parsed_in_the_jail(probe):
    assert probe("ﬁ = 3\nprint(ψ := fi)").output == "3\n"
    assert probe("import unicodedata").code == "STO-S025"


def test_preloaded_module_imports_and_its_neighbour_does_not(probe):
    assert probe("import resource", "resource").status is RunStatus.OK
    outcome = probe("import socket", "resource")
    assert (outcome.code, outcome.layer) == ("STO-S025", RunLayer.LANGUAGE)


def test_program_is_main_with_ordinary_builtins(probe):
    source = "import sys\nprint(sys.modules['__main__'].__dict__ is globals())\nopen"
    assert probe(source).output == "True\n"


def test_error_text_is_bounded_even_with_lone_surrogates(probe):
    outcome = probe("raise ValueError('\\udcff' + 'x' * 100000)")
    assert outcome.status is RunStatus.USER_ERROR
    assert len(outcome.error) < 5000


def test_exception_with_hostile_text_stays_an_error(probe):
    source = "class E(Exception):\n def __str__(self): raise E\nraise E"
    assert probe(source).status is RunStatus.USER_ERROR


def test_cli_prints_one_object_with_every_key(tmp_path):
    code, result, log = run_cli(tmp_path, "print('a\\nb')")
    assert (code, set(result)) == (0, KEYS)
    assert (result["value"], result["error"], result["layer"]) == ("a\nb\n", None, None)
    assert "seccomp" in log


def test_cli_keeps_what_a_killed_program_printed(tmp_path):
    source = "print('before')\nimport os\nos.fork()\nprint('after')"
    code, result, _ = run_cli(tmp_path, source)
    assert (code, result["status"], result["layer"]) == (4, "killed", "kernel")
    assert result["value"] == "before\n"
    assert "clone" in result["error"]


def test_cli_timeout_is_the_wall_limit(tmp_path):
    source = "import time; time.sleep(20)"
    code, result, _ = run_cli(tmp_path, source, "--timeout", "0.5")
    assert (code, result["layer"], result["limit"]) == (4, "limits", "wall_s")


def test_cli_preloads_modules_by_name(tmp_path):
    source = "import socket\nprint('in')\nsocket.socket()"
    code, result, _ = run_cli(tmp_path, source, "--preload", "json,socket")
    assert (code, result["value"]) == (4, "in\n")


@pytest.mark.parametrize("name", ["no_such_module", "../x", "__main__.x", "a b"])
def test_cli_refuses_a_module_that_is_none(tmp_path, name):
    code, result, log = run_cli(tmp_path, "pass", "--preload", name)
    assert (code, result) == (2, None)
    assert "STO-S030" in log


def test_cli_refuses_a_file_that_is_not_there(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "stoilo", "sandbox", "probe", tmp_path / "none"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "STO-U004" in done.stderr) == (2, True)
