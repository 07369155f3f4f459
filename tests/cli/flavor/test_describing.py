"""`stoilo flavor check | describe` as a person calls them."""

import json

import pytest

from stoilo.cli.main import main

FILE = """
name = "packaging"
distribution = "packaging"
versions = "{versions}"
level = "pure"
summary = "packaging: a part of it."
[modules."packaging.{module}"]
names = ["{name}"]
"""


@pytest.fixture
def write(tmp_path):
    def write_file(versions=">=1", module="version", name="parse"):
        path = tmp_path / "packaging.toml"
        path.write_text(FILE.format(versions=versions, module=module, name=name))
        return str(path)

    return write_file


def test_sound_file_exits_with_0(write, capsys):
    assert main(["flavor", "check", write()]) == 0
    assert "sound" in capsys.readouterr().out


def test_fault_is_shown_with_code_and_hint(write, capsys):
    assert main(["flavor", "check", write(name="gone")]) == 3
    out = capsys.readouterr().out
    assert "STO-P001: packaging.version.gone does not exist" in out
    assert "packaging 2" in out.splitlines()[-1]


def test_json_is_one_object(write, capsys):
    assert main(["flavor", "check", write("<1"), "--json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert (answer["library"], answer["sound"]) == ("packaging", False)
    assert answer["faults"][0]["code"] == "STO-P001"


def test_broken_file_is_a_usage_error(tmp_path, capsys):
    path = tmp_path / "x.toml"
    path.write_text("name = ")
    assert main(["flavor", "check", str(path)]) == 2
    assert "STO-P003" in capsys.readouterr().err


def test_named_read_list_must_exist(write, tmp_path, capsys):
    gone = str(tmp_path / "gone.txt")
    assert main(["flavor", "check", write(), "--read", gone]) == 2
    assert "STO-U004" in capsys.readouterr().err


def test_renewed_list_keeps_reasons_and_marks_what_is_unread(write, tmp_path, capsys):
    file, read = write(module="tags", name="sys_tags"), tmp_path / "packaging.read.txt"
    read.write_text("# All of it.\nsomewhere.inside.*\n")
    assert main(["flavor", "check", file, "--renew"]) == 3
    first, last = read.read_text().strip().split("\n\n")
    assert first == "# All of it.\nsomewhere.inside.*"
    assert last.startswith("# UNREAD\npackaging.")
    main(["flavor", "check", file])
    assert "nobody has read" in capsys.readouterr().out
    read.write_text(read.read_text().replace("UNREAD", "It was read."))
    main(["flavor", "check", file])
    assert "nobody has read" not in capsys.readouterr().out


def test_package_that_is_not_installed_cannot_be_described(capsys):
    assert main(["flavor", "describe", "never_installed"]) == 2
    assert "STO-S030" in capsys.readouterr().err


def test_modules_of_another_package_are_refused(capsys):
    assert main(["flavor", "describe", "json", "--module", "os.path"]) == 2
    assert "STO-S030" in capsys.readouterr().err


def test_draft_is_written_to_a_file(tmp_path):
    path = tmp_path / "click.toml"
    words = ["flavor", "describe", "click", "--module", "click.parser"]
    assert main([*words, "--output", str(path)]) == 0
    assert path.read_text().startswith("# Library click: a draft")
