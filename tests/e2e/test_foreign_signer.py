"""A signer of another user: refused where the server makes the keys itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_development_root_refuses_a_foreign_signer(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "stoilo.toml").write_text('signer_socket = "/nowhere"\n')
    words = [
        "up",
        "--data",
        str(data),
        "--grpc",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "stoilo", *words],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 2
    assert "STO-B071" in done.stderr
