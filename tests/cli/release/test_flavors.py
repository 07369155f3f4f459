from __future__ import annotations

import pytest

from stoilo.cli.main import main
from stoilo.cli.release import propose
from stoilo.cli.release import propose as release_revoke
from stoilo.flavors.manifest import find_flavor


@pytest.fixture
def words(monkeypatch):
    """Record what the ceremony's commands would be called with."""
    called = []

    def record(arguments, name, *, standalone_mode):
        called.append((name, *arguments))
        assert not standalone_mode

    monkeypatch.setattr(propose.request, "main", record)
    monkeypatch.setattr(release_revoke.revoke, "main", record)
    return called


def test_publishing_is_a_request_to_sign(words, tmp_path):
    stick, build = str(tmp_path / "stick"), str(tmp_path / "build")
    more = ["--release", "base", "--note", "why"]
    assert main(["flavor", "publish", stick, build, *more]) == 0
    assert words == [("stoilo flavor publish", stick, "--build", build, *more)]


def test_withdrawing_names_the_flavor_by_its_id(words, tmp_path):
    stick, numeric = str(tmp_path / "stick"), find_flavor("numeric")
    assert main(["flavor", "withdraw", stick, numeric.alias]) == 0
    asked = ("--flavor", numeric.digest, "--part", "numeric")
    assert words == [("stoilo flavor withdraw", stick, *asked)]


@pytest.mark.parametrize(
    "arguments",
    [["publish", "stick", "nothing"], ["withdraw", "stick", "nothing"]],
)
def test_what_cannot_be_proposed_ends_in_a_code(
    arguments, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["flavor", *arguments]) == 2
    assert "STO-" in capsys.readouterr().err
