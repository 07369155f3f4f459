import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stoilo.cli.main import main
from stoilo.cli.policy import policy
from stoilo.policies.levels import level_names

PURE = "import math\ndef task(kwargs):\n    return math.pi\n"
NUMERIC = "import numpy as np\ndef task(kwargs):\n    return np.zeros(3)\n"
HOSTILE = "import os\ndef task(kwargs):\n    return os.system('id')\n"


@pytest.fixture
def write(tmp_path: Path):
    def write_file(text: str, name: str = "task.py") -> str:
        path = tmp_path / name
        path.write_bytes(text.encode("utf-8"))
        return str(path)

    return write_file


def test_admitted_source_exits_0(write, capsys) -> None:
    assert main(["policy", "check", write(PURE)]) == 0
    assert "admitted at level pure" in capsys.readouterr().out


SCRIPT = PURE + 'if __name__ == "__main__":\n    print(task({}))\n'


@pytest.mark.parametrize("command", [("policy", "check"), ("explain",)])
def test_script_block_is_dropped_with_a_note(write, capsys, command) -> None:
    assert main([*command, write(SCRIPT)]) == 0
    assert "line 4: the block" in capsys.readouterr().err


def test_parser_of_a_command_line_gets_a_hint_of_its_own(write, capsys) -> None:
    main(["policy", "check", write("import argparse\n" + PURE)])
    assert "a task has no command line" in capsys.readouterr().out


def test_refused_source_exits_3_and_shows_the_place(write, capsys) -> None:
    path = write(HOSTILE)
    assert main(["policy", "check", path]) == 3
    out = capsys.readouterr().out
    assert f"{path}:1:8: error[STO-P040]" in out
    assert "^^" in out


@pytest.mark.parametrize("flags", [["--format", "json"], ["--json"]])
def test_json_and_text_have_the_same_exit_code(write, capsys, flags) -> None:
    assert main(["policy", "check", write(HOSTILE), *flags]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "refused"
    assert document["lowest_level"] is None
    assert document["findings"][0]["line"] == 1


def test_every_format_has_the_same_count_and_exit(write, capsys) -> None:
    path = write(HOSTILE)
    counts = []
    for flags in (["--json"], ["--format", "sarif"], []):
        assert main(["policy", "check", path, *flags]) == 3
        out = capsys.readouterr().out
        if not flags:
            counts.append(out.count("[STO-"))
            continue
        document = json.loads(out)
        found = document.get("findings") or document["runs"][0]["results"]
        counts.append(len(found))
    assert len(set(counts)) == 1
    assert counts[0] > 0


def test_level_is_the_default_one_unless_asked(write, capsys) -> None:
    path = write(NUMERIC)
    assert main(["policy", "check", path, "--json"]) == 3
    refused = json.loads(capsys.readouterr().out)
    assert (refused["level"], refused["lowest_level"]) == ("pure", "numeric")
    assert main(["policy", "check", path, "--level", "numeric", "--json"]) == 0
    admitted = json.loads(capsys.readouterr().out)
    assert (admitted["level"], admitted["lowest_level"]) == ("numeric", "numeric")


def test_entry_is_checked(write) -> None:
    path = write(PURE)
    assert main(["policy", "check", path, "--entry", "task"]) == 0
    assert main(["policy", "check", path, "--entry", "other"]) == 3
    assert main(["policy", "check", write("x = 1\n")]) == 3


def test_policy_file_narrows(write) -> None:
    path = write(PURE)
    shut = write('format = 1\nname = "shut"\n', "policy.toml")
    assert main(["policy", "check", path, "--policy", shut]) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["check", "/no/such/file.py"],
        ["check", "/"],
        ["check", "\0"],
        ["check", "-", "--level", "root"],
        ["check", "-", "--format", "xml"],
        ["check", "-", "--entry", "x" * 999],
        ["show", "root"],
        ["unknown"],
        ["show", "default", "--against", "pure"],
        ["show", "/no/such/file.toml", "--against", "pure"],
        ["show", "--against", "pure"],
        ["show", "--schema", "none"],
    ],
)
def test_usage_errors_exit_2(arguments: list[str], capsys) -> None:
    assert main(["policy", *arguments]) == 2
    assert capsys.readouterr().out == ""


def test_source_comes_from_stdin() -> None:
    result = CliRunner().invoke(
        policy, ["check", "-", "--json"], input=PURE, standalone_mode=False
    )
    assert result.return_value == 0
    assert json.loads(result.output)["verdict"] == "admitted"


def test_oversize_source_is_a_finding_not_a_crash(write, capsys) -> None:
    assert main(["policy", "check", write("#" * 300_000), "--json"]) == 3
    assert "STO-P010" in capsys.readouterr().out


def test_nothing_in_the_source_is_executed(write, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    main(["policy", "check", write(f"open({str(marker)!r}, 'w')\n" + PURE)])
    assert not marker.exists()


def test_show_lists_the_levels(capsys) -> None:
    assert main(["policy", "show"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in level_names())


@pytest.mark.parametrize("name", level_names())
def test_show_level_names_modules_and_limits(name: str, capsys) -> None:
    assert main(["policy", "show", name]) == 0
    out = capsys.readouterr().out
    assert "math: " in out
    assert "memory_bytes" in out


def test_explain_says_what_each_level_makes_of_a_file(write, capsys) -> None:
    assert main(["explain", write(NUMERIC), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["lowest"] == "numeric"
    assert [row["admitted"] for row in document["levels"]][:2] == [False, True]
    assert main(["explain", write(HOSTILE)]) == 3
    assert "no level admits it" in capsys.readouterr().out


def test_explain_says_what_a_rule_means(capsys) -> None:
    assert main(["explain", "STO-P040"]) == 0
    assert "Why:" in capsys.readouterr().out


def test_diff_compares_levels_and_policies(write, capsys) -> None:
    assert main(["policy", "show", "numeric", "--against", "pure"]) == 0
    assert "+ modules.numpy: (none) ->" in capsys.readouterr().out
    shut = write('format = 1\nname = "shut"\n', "policy.toml")
    assert main(["policy", "show", shut, "--against", "default", "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)
    assert {"levels.pure.open_to"} <= {one["path"] for one in changes}


def test_schema_is_printed(capsys) -> None:
    assert main(["policy", "show", "--schema", "policy"]) == 0
    assert json.loads(capsys.readouterr().out)["additionalProperties"] is False


def test_show_tells_who_may_use_a_level(write, capsys) -> None:
    rules = write(
        "format=1\nname='x'\n[levels.pure]\nopen_to=['*']\nreview='manual'\n", "p.toml"
    )
    assert main(["policy", "show", "--policy", rules]) == 0
    assert "(open to everybody; a reviewer signs)" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["show", "--json"], ["show", "pure", "--json"]])
def test_show_as_json_is_one_document(arguments: list[str], capsys) -> None:
    assert main(["policy", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)
