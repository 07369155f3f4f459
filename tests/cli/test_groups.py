import tomllib
from pathlib import Path

import pytest

from stoilo.cli import groups, main
from stoilo.core.errors import UsageError

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
IMPORTED_AS = {
    "grpcio-health-checking": "grpc_health",
    "prometheus-client": "prometheus_client",
}


def stand_in(name):
    def work(*_arguments, **_options):
        raise ModuleNotFoundError(name=name)

    return work


@pytest.mark.parametrize("extra", ["executor", "server", "web"])
def test_table_is_what_the_project_file_says(extra):
    declared = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    names = (line.partition(">")[0] for line in declared[extra])
    packages = {IMPORTED_AS.get(name, name).lower() for name in names}
    others = {"stoilo[executor]", "stoilo[server]"}
    assert packages - others == set(groups.PACKAGES[extra])


def test_installed_extra_passes():
    groups.require_extra("executor")


def test_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UsageError, match="executor extra") as caught:
        groups.require_extra("executor")
    assert (caught.value.code, caught.value.exit_code) == ("STO-U002", 2)


def test_command_that_cannot_be_imported_names_its_extra(monkeypatch, capsys):
    monkeypatch.setattr(main.cli, "main", stand_in("sqlalchemy.orm"))
    assert main.main(["boinc"]) == 2
    assert "pip install 'stoilo[server]'" in capsys.readouterr().err


def test_module_of_no_extra_is_our_own_fault(monkeypatch):
    monkeypatch.setattr(main.cli, "main", stand_in("stoilo.missing"))
    with pytest.raises(ModuleNotFoundError):
        main.main(["boinc"])
