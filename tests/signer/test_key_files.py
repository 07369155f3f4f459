"""Who may do what with the signer's files, by owner and mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoilo.core.errors import TrustError
from stoilo.signer.key_files import read_private_file, read_trusted_file


@pytest.mark.parametrize(
    ("mode", "private", "trusted"),
    [
        (0o600, True, True),
        (0o640, False, True),
        (0o644, False, True),
        (0o660, False, False),
        (0o602, False, False),
    ],
)
def test_file_is_read_only_where_nobody_else_may_do_what_it_forbids(
    tmp_path: Path, mode: int, *, private: bool, trusted: bool
) -> None:
    path = tmp_path / "root.json"
    path.write_bytes(b"root")
    path.chmod(mode)
    for read, allowed in ((read_private_file, private), (read_trusted_file, trusted)):
        if allowed:
            assert read(path) == b"root"
        else:
            with pytest.raises(TrustError, match="STO-K003"):
                read(path)


@pytest.mark.parametrize("read", [read_private_file, read_trusted_file])
def test_link_is_refused(tmp_path: Path, read) -> None:
    (tmp_path / "there").write_bytes(b"root")
    (tmp_path / "root.json").symlink_to(tmp_path / "there")
    with pytest.raises(TrustError, match="STO-K029"):
        read(tmp_path / "root.json")
