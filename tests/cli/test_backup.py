"""`stoilo backup` and `restore` say what is missing before a server fails for it."""

import pytest
from msgspec.structs import replace

from stoilo.cli import backup
from stoilo.cli.main import main
from stoilo.server.backup.manifest import FORMAT, LogPlace, Manifest

MADE = Manifest(
    format=FORMAT,
    version="1",
    taken_at=1,
    offline_keys=False,
    development=True,
    mariadb=False,
    log=LogPlace("a.b/c", 3, "0" * 64, 2),
    files=(),
)


@pytest.fixture
def made(monkeypatch):
    """Return a function that lets both commands end with a given manifest."""

    def ends_with(**changed):
        manifest = replace(MADE, **changed)
        for name in ("take_backup", "restore_backup"):
            monkeypatch.setattr(backup, name, lambda *_, **__: manifest)

    return ends_with


def say(capsys, tmp_path):
    data = tmp_path / "data"
    assert main(["backup", "--data", str(data), "--output", str(tmp_path / "b")]) == 0
    taken = capsys.readouterr().out
    words = ["restore", str(tmp_path), "--data", str(data)]
    assert main([*words, "--nothing-published-since"]) == 0
    return taken, capsys.readouterr().out


def test_missing_offline_keys_are_told_before_the_start(made, capsys, tmp_path):
    made(development=True, offline_keys=False)
    taken, restored = say(capsys, tmp_path)
    assert "--offline-keys" in taken
    keys = str(tmp_path / "data" / "keys" / "offline")
    assert restored.index(keys) < restored.index("stoilo up --data")


def test_whole_backup_and_released_root_start_as_they_are(made, capsys, tmp_path):
    made(development=True, offline_keys=True)
    taken, restored = say(capsys, tmp_path)
    assert "whoever reads it" in taken
    assert "first copy" not in restored
    made(development=False, offline_keys=False)
    taken, restored = say(capsys, tmp_path)
    assert "offline" not in taken + restored
