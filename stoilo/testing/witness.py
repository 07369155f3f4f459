"""A witness as a process of its own, to start, kill and start again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stoilo.testing.served import ServedCommand, run_stoilo


@dataclass
class WitnessProcess(ServedCommand):
    """`stoilo audit witness` in `data`, restartable on the port it was first given."""

    data: Path  # the witness's directory; its key is made at once
    name: str  # its name
    # verifier keys of the logs that it watches, as many as known by `start`
    logs: Sequence[str] = ()
    logs_file: Path | None = None  # file with more of them
    # certificate and key file, None for plain HTTP
    tls: tuple[Path, Path] | None = None
    vkey: str = field(default="", init=False)  # its own verifier key
    # where it answers; filled in by the first `start`
    url: str = field(default="", init=False)
    listen: str = field(default="127.0.0.1:0", init=False)

    def __post_init__(self) -> None:
        """Make the key."""
        words = ("--data", str(self.data), "--name", self.name)
        self.vkey = run_stoilo("audit", "key", "witness", *words).strip()

    def start(self) -> str:
        """Run it and return its URL; later starts reuse the bound port."""
        line = self.run(self.data / "witness.log")
        self.url = str(json.loads(line)["url"])
        self.listen = self.url.partition("://")[2].rstrip("/")
        return self.url

    def words(self) -> list[str]:
        """Return the words of its command line."""
        words = ["--data", str(self.data), "--listen", self.listen]
        for vkey in self.logs:
            words += ["--log", vkey]
        words += ["--logs", str(self.logs_file)] if self.logs_file else []
        if self.tls is not None:
            certificate, key = map(str, self.tls)
            words += ["--certificate", certificate, "--certificate-key", key]
        return ["audit", "witness", *words]


def write_log_policy(
    path: Path, witnesses: Sequence[WitnessProcess], threshold: int
) -> Path:
    """Write a project's log policy: `threshold` of `witnesses`; returns `path`."""
    names = [f"w{number}" for number in range(1, len(witnesses) + 1)]
    lines = [
        f"witness {name} {one.vkey} {one.url}"
        for name, one in zip(names, witnesses, strict=True)
    ]
    lines += [f"group enough {threshold} {' '.join(names)}", "quorum enough", ""]
    path.write_text("\n".join(lines))
    return path
