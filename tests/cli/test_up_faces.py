"""`stoilo up` brings the pages when they can be there, and says so when not."""

import sys

import pytest

from stoilo.cli.up import find_faces


@pytest.fixture
def without_jinja2(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("stoilo.web")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)


def test_pages_are_of_the_log_and_of_the_console():
    names = [face.__name__ for face in find_faces()]
    assert names == ["audit_pages", "console_pages"]


@pytest.mark.usefixtures("without_jinja2")
def test_without_jinja2_the_server_runs_without_pages(caplog):
    assert find_faces() == ()
    assert "stoilo[web]" in caplog.text


def test_missing_module_of_our_own_is_our_own_fault(monkeypatch):
    monkeypatch.setitem(sys.modules, "stoilo.web.routes", None)
    with pytest.raises(ModuleNotFoundError):
        find_faces()
