"""The pages' Python runs as printed: one server, every block in order, as notebook cells."""

import ast
import asyncio
import inspect
import linecache
import re
from pathlib import Path

import pytest

import stoilo

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[2] / "docs"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = {
    "tutorial/first-task.md": ["True", "5", "3.1416", "UserError True"],
    "howto/use-map.md": ["3.1", "of 60", "[32, 9, 64]"],
    "howto/write-validators.md": [],
    "howto/check-source-before-sending.md": ["def task(call)", "3"],
    "howto/read-errors.md": ["2.5"],
}


async def run_cell(text, name, space):
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    done = eval(compile(text, name, "exec", flags=flags), space)  # noqa: S307 - our pages
    if inspect.isawaitable(done):
        await done


async def run_pages(capsys):
    for page, expected in PAGES.items():
        space = {"__name__": "__main__", "stoilo": stoilo}
        if "howto" in page:
            space["conn"] = await stoilo.connect("stoilo-data/connection.json")
        if page.endswith("read-errors.md"):
            await run_cell(
                "task = conn.create_task(lambda call: 2.5)", "<set-up>", space
            )
        cells = cells_of(page)
        for number, cell in enumerate(cells):
            await run_cell(cell, f"<ipython-input-{number}-{page}>", space)
        printed = capsys.readouterr().out
        assert cells
        assert [text for text in expected if text not in printed] == [], page
        if page.endswith("write-validators.md"):
            assert space["result"] == 2.5
        await space["conn"].close()


def cells_of(page):
    return FENCE.findall((DOCS / page).read_text(encoding="utf-8"))


def test_every_block_runs_and_prints_what_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("STOILO_CONNECTION", "stoilo-data/connection.json")
    monkeypatch.setattr("builtins.input", lambda _: "yes")
    project = stoilo.local(volunteers=3, data=Path("stoilo-data"))
    project.start()
    try:
        asyncio.run(run_pages(capsys))
    finally:
        project.stop()
