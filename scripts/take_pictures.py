"""Take a picture of every page of a real project: ``python scripts/take_pictures.py FOLDER``.

A server with three volunteers is started in a temporary directory, a few tasks are run, and
Chromium follows the links of the join page, of a researcher, an operator, a reviewer and a
volunteer; each page is taken once, in both schemes, as wide as a phone and as a screen
(`make pictures`). With ``--docs`` the few that the documentation shows are made again from
them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import stoilo
from stoilo.low_level.redundancy import CreateOptions
from stoilo.testing.deployment import Deployment
from stoilo.testing.served import run_stoilo

VIEWS = [(scheme, width) for scheme in ("light", "dark") for width in (390, 1280)]
ONE_OF_MANY = re.compile(r"[0-9a-f]{12,}|\d+")
DOCS = Path(__file__).resolve().parents[1] / "docs" / "howto" / "pictures"
SHOWN = {
    "console-task-done-light-1280": "a-task.png",
    "console-dark-390": "tasks-on-a-phone.png",
    "console-project-light-1280": "the-project.png",
}
COLOURS = (
    32  # of what the documentation shows: a page has few, and a repository keeps all
)
LINKS = "all => all.map(one => one.href)"
# Of numeric tasks each waits for a reviewer.
POLICY = """format = 1
name = "pictures"
levels.pure.open_to = ["researcher"]
levels.numeric = { open_to = ["researcher"], review = "manual" }
quotas.researcher = {}
"""
VERA = "vera@example.org"
PURPOSE = "Numbers that somebody needs, computed by people who can check what they run."


def darts(call):  # noqa: ANN001, ANN201 - as researchers write it
    """Estimate pi by darts."""
    draw, count = Random(call["seed"]), call["count"]  # noqa: S311 - repeatable
    print("throwing", count)
    hits = sum(draw.random() ** 2 + draw.random() ** 2 <= 1 for _ in range(count))
    return {"seed": call["seed"], "pi": 4 * hits / count}


def share(call):  # noqa: ANN001, ANN201 - as researchers write it
    """Return each one's part of a cake."""
    return call["cakes"] / call["guests"]


def compute(connection: Path) -> dict[str, str]:
    """Run tasks of several kinds; returns the id of one of each."""
    with stoilo.connect_sync(connection) as conn:
        call = {"count": 20_000, "seed": 1}
        options = {"label": "pi by darts", "publish_source": True}
        done = conn.create_task(darts, call, **options).submit()
        call = {"cakes": 3, "guests": 0}
        failed = conn.create_task(share, call, label="a share of cake").submit()
        five, label = CreateOptions(min_quorum=5), "needs five computers"
        waiting = conn.create_task(
            share, call, redundancy_options=five, label=label
        ).submit()
        calls = [{"count": 2000, "seed": seed} for seed in range(12)]
        label = "darts, one seed each"
        conn.map(darts, calls, label=label, chunk_items=4).results()
        done.result(), failed.result()
        review = conn.create_task(share, call, level="numeric", label="to review")
        tasks = {"done": done, "failed": failed, "waiting": waiting}
        tasks["review"] = review.submit()
        return {name: task.task_id for name, task in tasks.items()}


def walk(page: Page, start: str, seen: set[str]) -> Iterator[str]:
    """Follow links from `start` on the same server; yields each kind of page, open, by name.

    Of many that differ by a number or an id alone, the first; of what was `seen`, none.
    """
    ahead = deque([start])
    while ahead:
        address = urlsplit(ahead.popleft())
        kind = ONE_OF_MANY.sub("one", address.path)
        if kind in seen or address.netloc != urlsplit(start).netloc:
            continue
        seen.add(kind)
        url = address._replace(fragment="").geturl()
        if not is_page(page, url):
            continue
        page.goto(url)
        links: list[str] = page.eval_on_selector_all("a[href]:not([download])", LINKS)
        ahead.extend(links)
        yield kind.strip("/").replace("/", "-") or "join"


def is_page(page: Page, url: str) -> bool:
    """Say whether what lies at `url` is shown, not saved."""
    kind = page.request.head(url).headers.get("content-type", "")
    return kind.startswith("text/html")


def take(page: Page, file: str, folder: Path) -> None:
    """Keep a page in every view, as `file` with the view behind it."""
    for scheme, width in VIEWS:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of the two
        page.set_viewport_size({"width": width, "height": 900})
        page.screenshot(path=folder / f"{file}-{scheme}-{width}.png", full_page=True)


def take_all(browser: Browser, served: Deployment, folder: Path) -> None:
    """Take every page of everybody, and a task in each of its states."""
    line = served.line or served.start()
    url, tasks = line.http, compute(Path(line.connection))
    seen = {"/console/task/one"}
    for enter, start in (
        (partial(follow_link, served, "local", "console"), "console/"),
        (partial(follow_link, served, "olga", "operation"), "console/project"),
        (partial(show_token, served, "rita"), "console/reviews"),
        (partial(show_key, served, VERA), "console/volunteer"),
        (None, f"audit/task/{tasks['done']}"),
        (None, "console/sign-in"),
        (None, ""),  # at last: its figures are a minute old
    ):
        page = browser.new_context().new_page()
        if enter is not None:
            enter(page)
        for found in walk(page, url + start, seen):
            take(page, found, folder)
        for state, task in tasks.items() if start == "console/" else ():
            page.goto(f"{url}console/task/{task}")
            take(page, f"console-task-{state}", folder)


def follow_link(served: Deployment, name: str, what: str, page: Page) -> None:
    """Sign somebody in by a one-time link."""
    page.goto(give_access(served, name, what))
    page.get_by_role("button", name="Sign in").first.click()


def show_token(served: Deployment, name: str, page: Page) -> None:
    """Make somebody a reviewer, and sign him in with the token of his file."""
    key, file = served.data.parent / f"{name}.pem", served.data.parent / f"{name}.json"
    public = run_stoilo("policy", "review", "keygen", "--output", str(key)).strip()
    give_access(served, name, "review", "--key", public, "--connection", str(file))
    connection = json.loads(file.read_text())
    page.goto(f"{connection['http']}console/sign-in")
    page.fill("#secret", connection["token"])
    page.get_by_role("button", name="Sign in").first.click()


def show_key(served: Deployment, email: str, page: Page) -> None:
    """Sign a volunteer in with the key that no client of his has."""
    assert served.line is not None  # noqa: S101 - for the type checker
    words = ["boinc", "account", "--data", str(served.data), "--email", email]
    page.goto(f"{served.line.http}console/volunteer/sign-in")
    page.fill("#key", run_stoilo(*words, "--strong").strip())
    page.get_by_role("button", name="Sign in").first.click()


def give_access(served: Deployment, name: str, what: str, *more: str) -> str:
    """Return what `account add` says."""
    words = ["account", "add", name, "--data", str(served.data), "--for", what, *more]
    return run_stoilo(*words).strip()


def open_browser(playwright: Any) -> Browser:  # noqa: ANN401 - its own type is generated
    """Return the system's Chromium; nothing is downloaded."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    # Chromium's own sandbox refuses to run as root; what it shows is ours.
    words = ["--no-sandbox"] if os.geteuid() == 0 else []
    found: Browser = playwright.chromium.launch(executable_path=path, args=words)
    return found


def keep_shown(folder: Path) -> None:
    """Put the tops of a few pictures, small, where the documentation shows them."""
    DOCS.mkdir(exist_ok=True)
    for name, file in SHOWN.items():
        with Image.open(folder / f"{name}.png") as taken:
            top = taken.convert("RGB").crop((0, 0, taken.width, 900))
            top.quantize(COLOURS).save(DOCS / file, optimize=True)


def main() -> None:
    """Take them all."""
    folder, docs = Path(sys.argv[1]), sys.argv[2:] == ["--docs"]
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["STOILO_SERVER_PURPOSE"] = PURPOSE
    with (
        tempfile.TemporaryDirectory(prefix="pictures-") as place,
        sync_playwright() as own,
    ):
        browser = open_browser(own)
        policy = Path(place) / "policy.toml"
        policy.write_text(POLICY)
        options = ("--policy", str(policy))
        data = Path(place) / "data"
        with Deployment(data, volunteers=2, options=options) as served:
            own_host = served.attach(VERA, Path(place) / "vera")
            take_all(browser, served, folder)
            own_host.terminate()
            own_host.wait()
        browser.close()
    if docs:
        keep_shown(folder)


if __name__ == "__main__":
    main()
