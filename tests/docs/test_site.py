"""The pages become a site that reads, links and searches without a server."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


class Fetched(HTMLParser):
    """Collects what a browser loads by itself with a page."""

    def __init__(self):
        super().__init__()
        self.places = []

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        if tag in {"script", "img", "iframe"} or (
            tag == "link" and told.get("rel") in {"stylesheet", "preload"}
        ):
            self.places.append(told.get("src") or told.get("href") or "")


def make(copy, output):
    return subprocess.run(
        [copy / "scripts" / "site.sh", output],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the pages, whose environment is the project's own."""
    place = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "docs", place / "docs")
    shutil.copytree(ROOT / "scripts", place / "scripts")
    for page in ROOT.glob("*.md"):
        shutil.copy(page, place)
    kept = (
        path for path in ROOT.iterdir() if path.name[0] != "." and path.name != "build"
    )
    for path in [*kept, ROOT / ".venv"]:
        if not (place / path.name).exists():
            (place / path.name).symlink_to(path)
    return place


@pytest.fixture(scope="module")
def site(copy):
    done = make(copy, copy / "site")
    assert done.returncode == 0, done.stderr
    return copy / "site"


def test_every_page_is_there_and_can_be_searched(site):
    text = (site / "searchindex.js").read_text()
    names = set(json.loads(text[len("Search.setIndex(") : -1])["docnames"])
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    assert names == {str(p.relative_to(ROOT).with_suffix("")) for p in pages}
    assert (site / "index.html").is_file()


def test_no_page_loads_anything_from_elsewhere(site):
    far = re.compile(r"^(https?:)?//")
    for page in site.rglob("*.html"):
        found = Fetched()
        found.feed(page.read_text())
        assert [place for place in found.places if far.match(place)] == []


def test_a_link_that_leads_nowhere_ends_it(copy, site):
    page = copy / "docs" / "known-gaps.md"
    page.write_text(page.read_text() + "\n[more](no-such-page.md)\n")
    done = make(copy, site)  # once more: only what has changed
    assert done.returncode != 0
    assert "no-such-page.md" in done.stderr
