"""A real project in a real browser: a reviewer's task, and a volunteer's first to last day.

The reviewer signs by command with a key that the server never sees. The browser runs no
script; each page fits and can be read in every view.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stoilo.core.codec.skeleton import encode
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.testing.deployment import Deployment
from stoilo.testing.served import run_stoilo
from tests.support.axe import check_views
from tests.support.wire import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow

POLICY = """
format = 1
name = "reviewed"
[levels.pure]
open_to = ["researcher"]
[levels.numeric]
open_to = ["researcher"]
review = "manual"
[quotas.researcher]
"""
SOURCE = b"def darts(call):\n    return {'inside': call['x'] * 2}\n"
NEWER = SOURCE.replace(b"* 2", b"* 3")
EMAIL, PASSWORD = "vera@example.org", "correct horse battery"


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    home = tmp_path_factory.mktemp("people")
    data = home / "data"
    data.mkdir(mode=0o700)
    (home / "policy.toml").write_text(POLICY)
    (data / "stoilo.toml").write_text(f'policy = "{home / "policy.toml"}"\n')
    with Deployment(data, volunteers=2) as made:
        yield made


@pytest.fixture(scope="module")
def client(deployed: Deployment) -> Iterator[RawClient]:
    with RawClient(deployed.data / "connection.json") as made:
        yield made


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(java_script_enabled=False)
    yield context.new_page()
    context.close()


def submit(client: RawClient, source: bytes = SOURCE, **fields: object) -> str:
    return client.submit(
        task_module=source, entry="darts", arguments=encode({"x": 21}), **fields
    )


@pytest.fixture(scope="module")
def helping(
    deployed: Deployment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Attach a computer with a new account, as a person does, and let it help."""
    home = tmp_path_factory.mktemp("vera")
    root = (deployed.data / "keys" / "root.json").read_bytes()
    place = {"HOME": str(home), "XDG_STATE_HOME": str(home)}
    stoilo = [sys.executable, "-m", "stoilo", "volunteer"]
    words = ["attach", deployed.line.project, "--email", EMAIL, "--new-account"]
    words += ["--fingerprint", hashlib.sha256(root).hexdigest()]
    attached = {"input": PASSWORD.encode(), "env": os.environ | place}
    subprocess.run([*stoilo, *words], check=True, capture_output=True, **attached)
    with (
        (home / "log").open("wb") as log,
        subprocess.Popen(
            [*stoilo, "run"], env=os.environ | place, stdout=log, stderr=log
        ) as process,
    ):
        yield
        process.terminate()


# One copy for each of the three computers
ALL = pb.RedundancyOptions(
    min_quorum=3,
    target_results=3,
    max_error=3,
    max_total=6,
    max_success=6,
    delay_bound_s=3600,
)


def enroll(deployed: Deployment, folder: Path) -> tuple[str, str]:
    """Make a reviewer with a key of his own; returns his connection file and his key."""
    connection, key = str(folder / "ann.json"), str(folder / "ann.pem")
    public = run_stoilo("policy", "review", "keygen", "--output", key).strip()
    place = ["--data", str(deployed.data), "--connection", connection]
    run_stoilo("account", "add", "ann", *place, "--for", "review", "--key", public)
    return connection, key


def commands(page: Any) -> list[str]:
    return page.locator("#sign ~ pre.command").all_inner_texts()


def follow(page: Any, folder: Path, connection: str, key: str) -> str:
    """Run the three commands as the page has them; returns what signing printed."""
    printed = ""
    for command in commands(page)[:3]:
        told = command.replace(" FILE", f" {connection}").replace("reviewer.pem", key)
        words = [sys.executable, "-m", *told.split()]
        done = subprocess.run(words, check=True, cwd=folder, capture_output=True)
        printed += done.stdout.decode()
    return printed


def test_reviewer_reads_here_signs_there_and_the_task_runs(
    deployed: Deployment,
    client: RawClient,
    page: Any,
    wait_until: Callable[..., Any],
    tmp_path: Path,
) -> None:
    connection, key = enroll(deployed, tmp_path)
    token = json.loads(Path(connection).read_text())["token"]
    page.goto(f"{deployed.line.http}console/")
    page.get_by_label("Link's code or token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    assert "Nothing waits." in page.inner_text("main")

    task = open_waiting(page, submit(client, level="numeric"), wait_until)
    assert "Nobody has signed it yet." in page.inner_text("main")
    digest = hashlib.sha256(SOURCE).hexdigest()
    assert digest in page.inner_text("main")
    check_views(page)
    assert digest in follow(page, tmp_path, connection, key)
    page.reload()
    assert "Approved" in page.inner_text("main")
    wait_until(lambda: page.reload() and "succeeded" in page.text_content(".lead"))
    wait_until(lambda: page.reload() and "of the log" in page.inner_text("main"))
    check_views(page)

    open_waiting(page, submit(client, NEWER, level="numeric"), wait_until)
    assert f"A review of {task[:12]}" in page.inner_text("main")
    changes = page.get_by_role("region", name="Differences").inner_text()
    assert "+    return {'inside': call['x'] * 3}" in changes
    check_views(page)


def open_waiting(page: Any, task: str, wait_until: Callable[..., Any]) -> str:
    """Open the page of a task from the queue, once it waits there; returns its id."""
    page.get_by_role("link", name="Reviews").click()
    link = page.get_by_role("link", name=task[:12])
    wait_until(lambda: page.reload() and link.count())
    link.click()
    return task


def sign_in(page: Any, deployed: Deployment) -> None:
    page.goto(str(deployed.line.project))
    page.get_by_role("link", name="What ran on your computers").click()
    page.get_by_label("E-mail address").fill(EMAIL)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


@pytest.mark.usefixtures("helping")
def test_volunteer_joins_helps_leaves_and_is_forgotten(
    deployed: Deployment,
    client: RawClient,
    page: Any,
    wait_until: Callable[..., Any],
) -> None:
    task = submit(client, redundancy=ALL)
    sign_in(page, deployed)
    proof = page.locator(f'a[href="/audit/task/{task}"]')
    row = page.locator("tr", has=proof)
    wait_until(
        lambda: page.reload() and proof.count() and "came back" in row.inner_text()
    )
    check_views(page)
    proof.click()
    assert "Download the proof" in page.inner_text("main")
    page.go_back()

    page.get_by_label("They shall get no more work").check()
    page.get_by_role("button", name="Leave the project").click()
    assert "You left" in page.inner_text("main")
    check_views(page)
    waits = submit(client, redundancy=ALL)
    wait_until(lambda: [one.state for one in client.poll(waits).copies].count("unsent"))
    page.reload()
    assert waits not in page.content()

    page.get_by_label("Type the account's address").fill(EMAIL)
    page.get_by_role("button", name="Delete the account").click()
    check_views(page)
    sign_in(page, deployed)
    assert "STO-E016" in page.inner_text("main")
    listed = run_stoilo("boinc", "account", "--data", str(deployed.data))
    assert EMAIL not in listed
