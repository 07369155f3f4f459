"""Pages that take long hold up other pages, never the project beside them."""

import contextlib
import http.client
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from stoilo.server.http.web_server import PublicPlace
from stoilo.web.routes import _Handlers

READERS = 60  # more than the threads that a server has for everything
SOON_S, LATE_S = 2, 60  # who waits in vain, and who is answered on any machine


def project_answers(url, seconds):
    host = url.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(host, timeout=seconds)
    with contextlib.closing(connection):
        connection.request("GET", "/project")
        try:
            return connection.getresponse().status == 200
        except TimeoutError:
            return False


@pytest.fixture
def crowd(serving, ask_for):
    """Return whether the project answers while many wait for a page that takes long."""
    release, begun = threading.Event(), threading.Semaphore(0)

    def slow(_request):
        begun.release()
        release.wait(120)
        return PlainTextResponse("done")

    def project(_request):
        return PlainTextResponse("here")

    def run(guard, at_once, seconds):
        app = Starlette(
            routes=[Route("/slow", guard(slow)), Route("/project", project)]
        )
        with serving(app) as url, ThreadPoolExecutor(READERS) as readers:
            waiting = [readers.submit(ask_for, url, "/slow") for _ in range(READERS)]
            for _ in range(at_once):
                begun.acquire()
            answered = project_answers(url, seconds)
            release.set()
            assert {one.result().status for one in waiting} == {200}
        return answered

    yield run
    release.set()


def test_project_answers_while_pages_take_long(crowd, tmp_path):
    handlers = _Handlers(PublicPlace(tmp_path, "http://x.test/"))
    assert crowd(handlers.guarded, 2, LATE_S)


def test_without_threads_of_their_own_pages_would_stop_the_project(crowd):
    assert not crowd(lambda handler: handler, 40, SOON_S)  # control
