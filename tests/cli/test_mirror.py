"""`stoilo mirror`: the key with which caches fetch a project's shared files."""

from __future__ import annotations

from stoilo.cli.main import main


def test_key_is_made_once_and_for_a_server_only(tmp_path, capsys):
    assert main(["mirror", "key", "--data", str(tmp_path)]) == 2
    (tmp_path / "engine").mkdir()
    keys = set()
    for _ in range(2):
        capsys.readouterr()
        assert main(["mirror", "key", "--data", str(tmp_path)]) == 0
        keys.add(capsys.readouterr().out)
    assert len(keys) == 1
    assert len(keys.pop()) == 65
