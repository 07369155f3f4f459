"""Tutorials' commands run as printed, in one shell, and print what the page shows."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stoilo.testing.deployment import Deployment

pytestmark = pytest.mark.slow
TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorial"
BLOCK = re.compile(
    r"^```(console|python title=\"([\w.]+)\")\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
VARIES = re.compile(r"[0-9a-f]{8,}|\d[\d.]*")
PRINTED = "http://127.0.0.1:57080/"
ENDED = "@ended"
# How many of the project's own volunteers each page starts
PAGES = {
    "first-project.md": 2,
    "first-hour-as-a-volunteer.md": 1,
    "first-review.md": 2,
}
POLICY = re.compile(
    r"^```toml title=\"policy.toml\"\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


def steps_of(text):
    """Yield a page's files, and its commands with the lines that each prints."""
    for _, name, body in BLOCK.findall(text):
        if name:
            yield f"cat > {name} <<'END'\n{body}END", ""
            continue
        for told in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, shown = told.partition("\n")
            yield command, shown


def plain(text, home):
    """Return the lines of a text, numbers and places made alike."""
    lines = text.replace(str(home), "~").splitlines()
    return [" ".join(VARIES.sub("#", line).split()) for line in lines]


def run_page(text, folder):
    """Yield each command, whether it succeeded, what it printed, and what the page shows."""
    steps = list(steps_of(text))
    script = "\n".join(f'{command}\necho "{ENDED} $?"' for command, _ in steps)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh"], input=script, cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=600, check=False,
        env=os.environ | {"PATH": path, "HOME": str(folder), "XDG_STATE_HOME": str(folder)},
    )  # fmt: skip
    printed = re.split(rf"^{ENDED} (\d+)\n", done.stdout, flags=re.MULTILINE)
    for (command, shown), said, code in zip(
        steps, printed[::2], printed[1::2], strict=False
    ):
        yield command, code == "0", said, shown


@pytest.mark.parametrize("page", PAGES)
def test_each_command_prints_what_the_page_shows(page, tmp_path):
    text = (TUTORIALS / page).read_text()
    options = ()
    for policy in POLICY.findall(text):
        (tmp_path / "policy.toml").write_text(policy)
        options = ("--policy", str(tmp_path / "policy.toml"))
    data, many = tmp_path / "project", PAGES[page]
    with Deployment(data, volunteers=many, options=options) as server:
        root = (tmp_path / "project" / "keys" / "root.json").read_bytes()
        text = text.replace(PRINTED, server.line.project)
        text = re.sub(r"(?<=--fingerprint )\w+", hashlib.sha256(root).hexdigest(), text)
        found = list(run_page(text, tmp_path))
    assert len(found) == len(list(steps_of(text)))
    for command, is_good, said, shown in found:
        assert is_good != ("[STO-" in shown), f"{command}: {said}"
        missing = set(plain(shown, tmp_path)) - set(plain(said, tmp_path))
        assert missing == set(), command
