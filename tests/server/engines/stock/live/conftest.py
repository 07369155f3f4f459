"""A live stock project, named by the environment (`make test-stock PROJECT_DIR=…`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoilo.server.engines.stock.installation.snapshot import ask_web
from stoilo.server.engines.stock.project.database import owner_name
from stoilo.server.engines.stock.project.directory import read_project
from stoilo.testing.deployment import Deployment
from tests.support.stocklive import live_bench

PROJECT = "STOILO_STOCK_PROJECT"
DATA = "STOILO_STOCK_DATA"


@pytest.fixture(scope="session")
def stock_project():
    where = os.environ.get(PROJECT)
    if not where:
        pytest.skip("needs a live stock project: make test-stock PROJECT_DIR=…")
    return read_project(Path(where))


@pytest.fixture(scope="session")
def scheduler(stock_project):
    """URL of the project's scheduler, as its master page names it."""
    return ask_web(stock_project, ())["scheduler"].url


@pytest.fixture(scope="session")
def owner():
    """Name of the server whose data directory was given: the project is its from then on."""
    data = os.environ.get(DATA)
    return owner_name(Deployment(Path(data)).log_key()) if data else ""


@pytest.fixture
def bench(stock_project, scheduler, owner):
    with live_bench(stock_project, scheduler, owner) as made:
        yield made
