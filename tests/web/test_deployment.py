"""The pages of a real server: submitted, logged, run by volunteers, read in Chromium."""

import html
import re
import shlex
import urllib.request

import pytest

from stoilo.cli.main import main
from stoilo.core.codec.skeleton import encode
from stoilo.testing.deployment import Deployment
from tests.support.wire import RawClient

SOURCE = b"def task(kwargs):\n    return kwargs['x'] * 2\n"


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """Return a running project, the key of its log, and a public and a private task."""
    data = tmp_path_factory.mktemp("pages") / "data"
    deployment = Deployment(data, volunteers=2)
    key = deployment.log_key()
    with deployment, RawClient(data / "connection.json") as client:
        tasks = [
            client.submit(
                task_module=SOURCE, arguments=encode({"x": x}), publish_source=public
            )
            for x, public in enumerate([True, False])
        ]
        for task in tasks:
            client.wait(task)
        yield deployment.line.http, key, tasks


def fetch(url):
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own
        return answer.read().decode()


def test_task_of_a_real_project_is_told_from_its_log(deployed, open_page, wait_until):
    url, _, (task, _) = deployed
    watched = open_page()
    assert watched.goto(f"{url}audit/task/{task}") == 200
    page = watched.page
    wait_until(lambda: page.reload() and "It succeeded" in page.inner_text("main"))
    assert "return kwargs['x'] * 2" in page.locator("#L2").inner_text()
    assert watched.complaints == []


def test_front_page_leads_to_the_log(deployed, open_page):
    url, _, _ = deployed
    watched = open_page()
    watched.goto(url)
    watched.page.get_by_role("link", name="The audit log").click()
    assert "Audit log of" in watched.page.locator("h1").inner_text()


def test_command_on_its_page_verifies_it(deployed, open_page, capsys):
    url, key, (task, _) = deployed
    watched = open_page()
    watched.goto(f"{url}audit/task/{task}")
    shown = watched.page.locator(".command").first.inner_text()
    command = shown.replace("\\\n", "").replace("policy.txt", shlex.quote(key))
    assert "--source" in command
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out


def test_task_whose_source_stays_private_shows_none_of_it(deployed, open_page):
    url, _, (public, private) = deployed
    watched = open_page()
    watched.goto(f"{url}audit/task/{private}")
    assert "Not published" in watched.page.inner_text("main")
    assert "kwargs" not in watched.page.content()
    assert private not in html.unescape(watched.page.content())
    watched.goto(f"{url}audit/task/{public}")
    assert "kwargs" in watched.page.content()  # control


def test_every_entry_of_a_real_log_has_a_page_without_a_fault(deployed):
    url, _, _ = deployed
    places = re.findall(r'href="/audit/entry/([0-9]+)"', fetch(f"{url}audit/"))
    assert len(places) > 8
    pages = [fetch(f"{url}audit/entry/{place}") for place in places]
    assert not [page for page in pages if 'role="alert"' in page]
