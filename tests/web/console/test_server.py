"""A real project in a real browser: sign in by a link, submit, watch, read, cancel, operate.

Without scripts: the browser runs none. Each page is looked at in both schemes at the widths
of a phone and of a screen; `make pictures` keeps what such a look sees.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import stoilo
from stoilo.core.codec.skeleton import decode
from stoilo.testing.deployment import Deployment
from stoilo.testing.served import run_stoilo
from tests.support.axe import check_views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow
HTML = "text/html; charset=utf-8"

SCRIPT = '''\
"""Estimate pi by darts on other people's computers."""
import asyncio
import random
import sys

import stoilo
from stoilo.low_level.redundancy import CreateOptions


def darts(call):
    """Return how many darts fall inside."""
    draw, n = random.Random(call["seed"]), call["n"]
    print("throwing", n)
    return {"inside": sum(draw.random() ** 2 + draw.random() ** 2 <= 1 for _ in range(n))}


async def main(path, label, copies):
    """Submit it for so many computers, all of which have to agree."""
    options = CreateOptions(min_quorum=copies)
    async with stoilo.connect(path) as conn:
        call = {"n": 5000, "seed": 7}
        staged = conn.create_task(darts, call, None, None, options, label=label)
        print((await staged.submit()).task_id)


asyncio.run(main(*sys.argv[1:3], int(sys.argv[3])))
'''
TRAINING = '''\
"""Three weights, by gradients of other people's computers."""
import asyncio
import sys

import numpy as np

import stoilo
from stoilo import learn


def squares(parameters, x, y):
    rest = x @ parameters["w"] - y
    return float(rest @ rest) / len(y), {"w": 2 * x.T @ rest / len(y)}


def wait(update, tally):
    """Hold the training up until somebody looks on."""
    sys.stdin.readline()


async def main(path):
    """Train a little."""
    x = np.random.default_rng(0).normal(size=(60, 3))
    y = x @ [1.0, -2.0, 3.0]
    model = learn.ArrayModel({"w": np.zeros(3)}, squares)
    options = learn.TrainerOptions(tasks=2, held_out=(x, y))
    async with stoilo.connect(path) as conn:
        await learn.fit("fedavg", model, (x, y), conn, epochs=15, options=options)


asyncio.run(main(sys.argv[1]))
'''


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with Deployment(tmp_path_factory.mktemp("console") / "data", volunteers=2) as made:
        yield made


def link(deployed: Deployment, name: str, what: str) -> str:
    words = ["account", "add", name, "--data", str(deployed.data), "--for", what]
    return run_stoilo(*words).strip()


def submit(
    deployed: Deployment,
    folder: Path,
    label: str,
    copies: int = 2,
    connection: Path | None = None,
) -> str:
    """Run a researcher's script; returns the id of the task that it submits."""
    script = folder / "darts.py"
    script.write_text(SCRIPT)
    place = connection or deployed.data / "connection.json"
    words = [str(place), label, str(copies)]
    command = [sys.executable, str(script), *words]
    return (
        subprocess.run(command, check=True, capture_output=True).stdout.decode().strip()
    )


@pytest.fixture
def sign_in(browser: Any, deployed: Deployment) -> Iterator[Callable[..., Any]]:
    """Sign somebody in by a link, in a browser that runs no script; gives the page."""
    contexts = []

    def go(name: str, what: str) -> Any:
        contexts.append(browser.new_context(java_script_enabled=False))
        page = contexts[-1].new_page()
        page.goto(link(deployed, name, what))
        page.get_by_role("button", name="Sign in").click()
        assert page.url == f"{deployed.line.http}console/"
        return page

    yield go
    for context in contexts:
        context.close()


def test_researcher_s_day(
    deployed: Deployment,
    sign_in: Callable[..., Any],
    wait_until: Callable[..., Any],
    tmp_path: Path,
) -> None:
    page = sign_in("local", "console")
    assert "You have no task yet" in page.inner_text("main")
    done = submit(deployed, tmp_path, "darts")
    page.reload()
    page.get_by_role("link", name=done[:12]).click()
    wait_until(lambda: page.reload() and "succeeded" in page.text_content(".lead"))
    for text in ('"inside": 3', "throwing 5000", "came back", "draw.random()"):
        assert text in page.inner_text("main")
    hosts = page.locator("#copies ~ div td code").all_inner_texts()
    assert len(set(hosts)) == 2  # two computers
    check_views(page)
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download as encoded").click()
    assert decode(saved.value.path().read_bytes())["inside"] > 3000

    waiting = submit(deployed, tmp_path, "lonely", copies=5)
    page.get_by_role("link", name="Tasks", exact=True).click()
    check_views(page)
    page.get_by_label("State").select_option("running")
    page.get_by_role("button", name="Show").click()
    assert done[:12] not in page.inner_text("main")
    wait_until(lambda: page.reload() and "needs 5 distinct" in page.inner_text("main"))
    page.get_by_role("link", name=waiting[:12]).click()
    page.get_by_role("button", name="Cancel this task").click()
    assert "The task was cancelled." in page.inner_text("main")
    check_views(page)
    page.get_by_role("link", name="Maps and trainings").click()
    assert "1 of 1 task" in page.inner_text("main")
    check_views(page)
    page.get_by_role("button", name="Sign out").click()
    check_views(page)
    page.goto(f"{deployed.line.http}console/task/{done}")
    assert page.locator("h1").inner_text() == "Sign in"


def darts(call: dict[str, Any]) -> Any:
    return call["n"]


def test_notebook_s_link_leads_to_its_page_signed_in_or_not(
    browser: Any, deployed: Deployment
) -> None:
    """The notebook is another site: its links bring no strict cookie along."""
    with stoilo.connect_sync(deployed.data / "connection.json") as conn:
        run = conn.map(darts, [{"n": 1}], label="from a notebook 7")
        run.results()
        task = conn.restore_task(run.task_ids[0])
        cells = [task._repr_html_(), run._repr_html_(), task.status()._repr_html_()]
    notebook = "http://notebook.example/"
    with browser.new_context() as context:
        page = context.new_page()
        page.route(
            notebook,
            lambda asked: asked.fulfill(body="".join(cells), content_type=HTML),
        )
        page.goto(notebook)
        links = page.get_by_role("link", name="Open in the console")
        with page.expect_popup() as opened:
            links.first.click()
        secret = link(deployed, "local", "console").partition("link=")[2]
        opened.value.get_by_label("Link's code or token").fill(secret)
        opened.value.get_by_role("button", name="Sign in").click()
        assert run.task_ids[0][:12] in opened.value.inner_text("h1")
        for at, title in ((1, "from a notebook"), (2, run.task_ids[0][:12])):
            with page.expect_popup() as opened:
                links.nth(at).click()
            opened.value.get_by_role("heading", level=1, name=title).wait_for()


def test_task_is_submitted_once_more_and_finishes(
    deployed: Deployment,
    sign_in: Callable[..., Any],
    wait_until: Callable[..., Any],
    tmp_path: Path,
) -> None:
    first = submit(deployed, tmp_path, "again")
    page = sign_in("local", "console")
    page.goto(f"{deployed.line.http}console/task/{first}")
    page.get_by_role("button", name="Submit it once more").click()
    assert "the same work once more" in page.inner_text("main")
    assert first not in page.url
    wait_until(lambda: page.reload() and "succeeded" in page.text_content(".lead"))


def test_training_changes_on_its_page_while_somebody_looks(
    browser: Any, deployed: Deployment, tmp_path: Path
) -> None:
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    words = [sys.executable, str(script), str(deployed.data / "connection.json")]
    begun = subprocess.Popen(words, stdin=subprocess.PIPE)
    with browser.new_context() as context, begun as training:
        page, complaints = context.new_page(), []
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(link(deployed, "local", "console"))
        page.get_by_role("button", name="Sign in").click()
        page.goto(f"{deployed.line.http}console/labels")
        page.get_by_role("link", name="fedavg", exact=True).click(timeout=120_000)
        page.evaluate("window.kept = true")
        training.stdin.close()  # now it goes on
        page.wait_for_selector("svg.chart polyline.held_out", timeout=120_000)
        page.wait_for_selector("text=its trainer has closed", timeout=120_000)
        assert page.evaluate("window.kept")  # not loaded again
        assert training.wait(60) == 0
        assert complaints == []
        assert page.locator("[hx-get]").count() == 0  # it asks no more
        for text in (
            "All tasks",
            "s of processor time",
            "counted, 0 refused",
            "median",
        ):
            assert text in page.text_content("main")
        check_views(page)


def test_operator_sees_the_project_and_no_task_of_others(
    deployed: Deployment,
    sign_in: Callable[..., Any],
    wait_until: Callable[..., Any],
    tmp_path: Path,
) -> None:
    task = submit(deployed, tmp_path, "theirs")
    page = sign_in("olga", "operation")
    assert "You have no task yet" in page.inner_text("main")
    page.goto(f"{deployed.line.http}console/task/{task}")
    assert "STO-R003" in page.inner_text("main")
    check_views(page)
    page.get_by_role("link", name="Project").click()
    wait_until(lambda: page.reload() and "Ready:" in page.inner_text("main"))
    assert "A development root" in page.inner_text("main")
    check_views(page)
    seen = {
        "Hosts": "2 computers",
        "Accounts": "olga",
        "Settings": "keep_workunits_days",
    }
    for name, text in seen.items():
        page.get_by_role("link", name=name, exact=True).click()
        assert text in page.inner_text("main")
        check_views(page)


def operate(deployed: Deployment, *words: str) -> str:
    return run_stoilo("account", *words, "--data", str(deployed.data))


def test_suspended_account_is_told_so_and_submits_nothing(
    deployed: Deployment, sign_in: Callable[..., Any], tmp_path: Path
) -> None:
    place = tmp_path / "anna.json"
    operate(deployed, "add", "anna", "--connection", str(place))
    task = submit(deployed, tmp_path, "hers", connection=place)
    page, olga = sign_in("anna", "console"), sign_in("olga", "operation")
    page.goto(f"{deployed.line.http}console/task/{task}")
    operate(deployed, "suspend", "anna", "--reason", "mines coins")
    page.get_by_role("button", name="Submit it once more").click()
    assert "STO-R009" in page.inner_text("main")
    page.goto(f"{deployed.line.http}console/")
    assert "The account is suspended" in page.inner_text("main")
    assert page.locator("tbody tr").count() == 1  # nothing was submitted
    olga.get_by_role("link", name="Accounts").click()
    assert "mines coins" in olga.locator("tr", has_text="anna").inner_text()
    operate(deployed, "suspend", "anna", "--undo")
    page.goto(f"{deployed.line.http}console/task/{task}")
    page.get_by_role("button", name="Submit it once more").click()
    assert "the same work once more" in page.inner_text("main")  # control


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "scripts"))
    import take_pictures  # noqa: PLC0415 - a script's folder, for this test

    yield take_pictures
    sys.modules.pop("take_pictures")


@pytest.fixture
def with_scripts(browser: Any) -> Iterator[Any]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


def test_every_page_that_links_lead_to_is_sound_in_every_view(
    deployed: Deployment, with_scripts: Any, pictures: Any, tmp_path: Path
) -> None:
    submit(deployed, tmp_path, "seen")
    url, page, seen, names = deployed.line.http, with_scripts, set(), set()
    for name, what, start in (
        ("local", "console", "console/"),
        ("olga", "operation", "console/project"),
        ("", "", ""),
    ):
        page.context.clear_cookies()
        if name:
            pictures.follow_link(deployed, name, what, page)
        for found in pictures.walk(page, url + start, seen):
            names.add(found)
            check_views(page, axe=True)
    assert {"join", "preferences", "audit-task-one", "console-task-one"} < names
