from __future__ import annotations

from pathlib import Path

import pytest

from stoilo.core.errors import UsageError
from stoilo.server.app.run import check_addresses
from stoilo.server.config import load_config
from stoilo.server.engines.workunits import Homogeneity, Replication, parse_replication


def test_flag_beats_environment_beats_file(tmp_path: Path) -> None:
    page = 'volunteers = 1\norigin = "a/b"\ngrpc = "127.0.0.1:1"\n'
    (tmp_path / "stoilo.toml").write_text(page)
    environ = {"STOILO_SERVER_VOLUNTEERS": "2", "STOILO_SERVER_GRPC": "127.0.0.1:2"}
    config, origins = load_config(tmp_path, {"volunteers": 3, "grpc": None}, environ)
    assert (config.volunteers, config.grpc, config.origin) == (3, "127.0.0.1:2", "a/b")
    assert origins["volunteers"] == "flag"
    assert origins["grpc"] == "environment"
    assert origins["origin"] == "file"
    assert origins["http"] == "default"


@pytest.mark.parametrize(
    "page", ["volunters = 1", 'volunteers = "many"', "volunteers = -1", "= 1", "grpc=1"]
)
def test_unknown_key_or_wrong_kind_is_refused(tmp_path: Path, page: str) -> None:
    (tmp_path / "stoilo.toml").write_text(page)
    with pytest.raises(UsageError, match="STO-R090"):
        load_config(tmp_path, {}, {})


def test_address_beyond_loopback_without_tls_is_refused(tmp_path: Path) -> None:
    config, _ = load_config(tmp_path, {"http": "0.0.0.0:80"}, {})
    with pytest.raises(UsageError, match="STO-R090"):
        check_addresses(config)


@pytest.mark.parametrize(
    "page",
    [
        'homogeneous = "numeric"',
        'homogeneous = "numeric=exact"',
        'homogeneous = "numerics=coarse"',
        'adaptive = "pure, numerics"',
        "spot_check_percent = 101",
        'node = "node/connection.json"',
    ],
)
def test_replication_without_sense_is_refused(tmp_path: Path, page: str) -> None:
    (tmp_path / "stoilo.toml").write_text(page)
    with pytest.raises(UsageError, match="STO-R090"):
        load_config(tmp_path, {}, {})


def test_replication_is_set_level_by_level() -> None:
    rules = parse_replication("numeric=coarse, tensor=fine", "pure,numeric")
    assert rules.of("numeric") == Replication(Homogeneity.COARSE, adaptive=True)
    assert rules.of("tensor") == Replication(Homogeneity.FINE)
    assert rules.of("pure") == Replication(adaptive=True)
    assert parse_replication("", "").of("pure") == Replication()


@pytest.mark.parametrize("url", ["https://a.example/", "http://[::1]:80/lab/stoilo/"])
def test_project_url_is_taken_as_it_is(tmp_path: Path, url: str) -> None:
    config, _ = load_config(tmp_path, {"project_url": url}, {})
    assert config.project_url == url


@pytest.mark.parametrize(
    "url",
    ["a.example/", "https://a.example", "https://a.example/x", "https://a/?x=/",
     "ftp://a/", "https://a/../", "https://u@a/", "https://a/" + "b" * 50 + "/"],
)  # fmt: skip
def test_project_url_that_no_client_attaches_to_is_refused(
    tmp_path: Path, url: str
) -> None:
    with pytest.raises(UsageError, match="STO-R090"):
        load_config(tmp_path, {"project_url": url}, {})


@pytest.mark.parametrize("address", ["*", "lab.example", "10.0.0.0/8", "127.0.0.1,::1"])
def test_only_one_address_may_say_who_calls(tmp_path: Path, address: str) -> None:
    with pytest.raises(UsageError, match="STO-R090"):
        load_config(tmp_path, {"trusted_proxy": address}, {})


@pytest.mark.parametrize(
    "page",
    [
        'oidc_issuer = "http://idp.example"\noidc_client = "x"',
        'oidc_issuer = "idp.example"\noidc_client = "x"',
        'oidc_issuer = "https://[/"\noidc_client = "x"',
        'oidc_issuer = "https://idp.example"',
        'oidc_client = "x"',
        'oidc_issuer = "https://idp.example"\noidc_client = "x"\noidc_claim = ""',
    ],
)
def test_provider_without_sense_is_refused(tmp_path: Path, page: str) -> None:
    (tmp_path / "stoilo.toml").write_text(page)
    with pytest.raises(UsageError, match="STO-R090"):
        load_config(tmp_path, {}, {})


@pytest.mark.parametrize("issuer", ["https://idp.example/x", "http://127.0.0.1:1"])
def test_provider_is_reached_over_tls_or_on_this_machine(
    tmp_path: Path, issuer: str
) -> None:
    given = {"oidc_issuer": issuer, "oidc_client": "x"}
    assert load_config(tmp_path, given, {})[0].oidc_issuer == issuer
