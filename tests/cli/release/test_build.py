from __future__ import annotations

import pytest

from stoilo.cli.main import main


def build(tmp_path, *more, root=b"{}"):
    file = tmp_path / "root.json"
    file.write_bytes(root)
    words = ["--output", tmp_path / "out", "--root", file, "--origin", "lab"]
    return main(["release", "build", *map(str, words), "--serial", "1", *more])


@pytest.mark.parametrize("floor", ["pure", "=3", "pure=x", "pure=-1"])
def test_floor_that_is_none_is_a_usage_error(tmp_path, capsys, floor):
    assert build(tmp_path, "--floor", floor) == 2
    assert "STO-U003" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("root", [b"", b"{}", b"\xff", b'{"signed": {}}'])
def test_root_that_cannot_be_read_builds_nothing(tmp_path, capsys, root):
    assert build(tmp_path, root=root) == 4
    assert "STO-K" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
