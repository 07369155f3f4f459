"""`stoilo boinc install` and `doctor` on a project's directory."""

from __future__ import annotations

import json
import re

import pytest

from stoilo.cli.main import main
from tests.support.stockproject import CONFIG, StockTree


@pytest.fixture
def tree(tmp_path):
    made = StockTree(tmp_path)
    nowhere = "<db_host>127.255.255.254</db_host>"
    config = re.sub(r"<db_host>\s*</db_host>", nowhere, CONFIG)
    made.write("config.xml", config)
    return made


def test_directory_without_a_project_is_a_usage_error(tmp_path, capsys):
    assert main(["boinc", "doctor", str(tmp_path)]) == 2
    assert "STO-B001" in capsys.readouterr().err


def test_project_with_faults_exits_with_4_and_names_them(tree, capsys):
    tree.write("stop_sched", "<stop/>\n")
    assert main(["boinc", "doctor", str(tree.root), "--no-web", "--json"]) == 4
    shown = json.loads(capsys.readouterr().out)
    failed = {one["name"] for one in shown["findings"] if one["grave"]}
    assert {"stopped", "database", "installation"} <= failed
    assert shown["healthy"] is False


def test_only_what_is_not_well_is_shown(tree, capsys):
    assert main(["boinc", "doctor", str(tree.root), "--no-web"]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line.startswith(("fail", "warn")) for line in lines)


def test_install_without_a_release_is_told_what_to_name(tree, tmp_path, capsys):
    words = ["boinc", "install", str(tree.root)]
    assert main(words) == 2
    assert main([*words, "--release", str(tmp_path)]) == 2
    assert "STO-B028" in capsys.readouterr().err
