import json
from pathlib import Path
from typing import Any

import pytest

from stoilo.cli.main import main

OPT_IN = ["volunteer", "opt-in"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    file = str(tmp_path / "optin.toml")

    def call(*words: str, code: int = 0) -> Any:
        assert main([*OPT_IN, "--file", file, *words, "--json"]) == code
        out, err = capsys.readouterr()
        return json.loads(out or err)

    return call


def test_what_is_set_is_shown(run) -> None:
    run("--max-level", "numeric", "--topic", "health", "--limit", "cpu_s=9")
    says = run()["files"][-1]["says"]
    assert (says["max_level"], says["topics"]) == ("numeric", ["health"])
    assert says["limits"] == {"cpu_s": 9}


def test_what_is_not_named_stays(run) -> None:
    run("--max-level", "numeric", "--require-review", "--limit", "wall_s=5")
    after = run("--limit", "cpu_s=7", "--topic", "art")["says"]
    assert after == {
        "max_level": "numeric",
        "require_review": True,
        "require_public_source": False,
        "topics": ["art"],
        "limits": {"cpu_s": 7, "wall_s": 5},
    }
    last = run("--no-require-review", "--any-topic", "--limit", "cpu_s=0")
    assert (last["says"]["require_review"], last["says"]["topics"]) == (False, [])
    assert last["says"]["limits"] == {"wall_s": 5}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--max-level", "root"), "STO-A060"),
        (("--limit", "cpu_s"), "STO-U003"),
        (("--limit", "cpu=1"), "STO-U003"),
        (("--limit", "cpu_s=-1"), "STO-U003"),
        (("--system", "--max-level", "pure"), "STO-U003"),
    ],
)
def test_mistake_writes_nothing(run, tmp_path: Path, words, code) -> None:
    assert run(*words, code=2)["error"]["code"] == code
    assert list(tmp_path.iterdir()) == []


def test_absent_file_allows_pure_and_a_broken_one_nothing(run, tmp_path: Path) -> None:
    assert run()["files"][-1]["exists"] is False
    (tmp_path / "optin.toml").write_text("max_level = 7\n")
    shown = run(code=2)
    assert shown["allowed"] is None
    assert "STO-A060" in shown["files"][-1]["error"]


def test_broken_file_is_not_written_over(run, tmp_path: Path) -> None:
    """What it was meant to say may have been stricter."""
    file = tmp_path / "optin.toml"
    file.write_text("require_reveiw = true\n")
    assert run("--max-level", "numeric", code=2)["error"]["code"] == "STO-A060"
    assert file.read_text() == "require_reveiw = true\n"


def test_text_says_it_in_words(tmp_path: Path, capsys) -> None:
    file = str(tmp_path / "optin.toml")
    assert main([*OPT_IN, "--file", file, "--require-public-source"]) == 0
    assert "level pure at most; public source only" in capsys.readouterr().out
    assert main([*OPT_IN, "--file", file]) == 0
    assert "allowed: level pure at most" in capsys.readouterr().out


def test_volunteer_still_needs_its_options(capsys) -> None:
    assert main(["volunteer"]) == 2
    assert "Missing option '--project'" in capsys.readouterr().err
