"""Jailed processes as the kernel shows them from outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.boinc import BoincClient
from tests.support.boincslot import is_jailed

__all__ = ["jailed"]


def jailed(client: BoincClient) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the client's runs, by their own filter behind the zygote's, with their status."""
    for pid in client.family():
        try:
            text = Path(f"/proc/{pid}/status").read_text(errors="replace")
        except OSError:  # it has just ended
            continue
        lines = (line.partition(":\t") for line in text.splitlines())
        status = {name: value for name, _, value in lines}
        if is_jailed(pid):
            yield pid, status
