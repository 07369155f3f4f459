from __future__ import annotations

import pytest

from stoilo.core.errors import UsageError
from stoilo.server.app.engine import open_engine
from stoilo.server.config import ServerConfig, load_config
from stoilo.server.data_directory import claim_directory
from stoilo.server.engines.stock.engine import StockEngine
from tests.support.stocktools.project import make_fake_project


@pytest.fixture
def home(tmp_path):
    claimed = claim_directory(tmp_path / "data")
    yield claimed
    claimed.lock.close()


def test_embedded_engine_is_the_default(tmp_path, home):
    work = open_engine(ServerConfig(tmp_path / "data"), home)
    assert work.embedded is work.engine
    assert work.master_url == ""
    work.engine.close()


@pytest.mark.parametrize(
    ("asked", "rate"), [({}, 0.02), ({"spot_check_percent": 0}, 0)]
)
def test_results_are_checked_again_unless_the_operator_says_never(
    tmp_path, home, asked, rate
):
    config, _ = load_config(tmp_path / "data", asked, {})
    work = open_engine(config, home)
    assert work.embedded._options.spot_check_rate == rate
    work.engine.close()


def test_stock_engine_takes_it_when_no_result_is_to_be_checked_again(tmp_path, home):
    fake = make_fake_project(tmp_path / "project")
    config = ServerConfig(
        tmp_path / "data",
        engine="stock",
        project_dir=str(fake.root),
        engine_database=fake.database_url,
        spot_check_percent=0,
    )
    open_engine(config, home).engine.close()


def test_stock_engine_is_the_project_of_the_directory(tmp_path, home):
    fake = make_fake_project(tmp_path / "project")
    config = ServerConfig(
        tmp_path / "data",
        engine="stock",
        project_dir=str(fake.root),
        engine_database=fake.database_url,
    )
    work = open_engine(config, home)
    assert isinstance(work.engine, StockEngine)
    assert work.master_url == "http://fake.example/"
    assert work.volunteers(0, home, "", tmp_path) is None
    assert work.engine.figures().workunits == 0
    work.engine.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"engine": "other"},
        {"engine": "stock"},
        {"project_dir": "x"},
        {"engine": "stock", "project_dir": "x", "volunteers": 1},
        {"engine": "stock", "project_dir": "x", "adaptive": "pure"},
        {"engine": "stock", "project_dir": "x", "spot_check_percent": 1},
        {"engine": "stock", "project_dir": "x", "keep_workunits_days": 0},
        {"engine": "stock", "project_dir": "x", "mirrors": "https://m.example/"},
        {"engine": "stock", "project_dir": "x", "node": "n", "dispatcher": "d"},
    ],
)
def test_settings_of_the_other_engine_are_refused(tmp_path, home, settings):
    with pytest.raises(UsageError, match="STO-R090"):
        open_engine(ServerConfig(tmp_path / "data", **settings), home)


def test_refusal_names_the_setting_and_what_to_do_instead(tmp_path, home):
    config = ServerConfig(
        tmp_path / "data", engine="stock", project_dir="x", mirrors="https://m.example/"
    )
    with pytest.raises(UsageError, match=r"mirrors is .* cache before download_url"):
        open_engine(config, home)
