from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stoilo.audit.format.facts import OperatorAct
from stoilo.core.errors import DeniedError, UsageError
from stoilo.server.admission import tokens
from stoilo.server.admission.tokens import Role
from stoilo.server.data_directory import CONNECTION_FILE, ConnectionFile
from stoilo.server.operations import access, accounts, people
from tests.support.serverbench import Bench, acts

NOW = 1_700_000_100
LIST = "name,role,group,days\nada2,,bio,30\nben,auditor,,\ncleo,researcher,bio,\n"


@pytest.fixture
def data(bench: Bench) -> Path:
    connection = ConnectionFile("127.0.0.1:1", "http://127.0.0.1/", None, "old", "ca")
    (bench.directory / CONNECTION_FILE).write_bytes(msgspec.json.encode(connection))
    return bench.directory


def imported(bench: Bench, data: Path, text: str = LIST) -> list[str]:
    """Return whose files are new."""
    found = people.read_people(text)
    return [*people.import_people(bench.store, data, found, data / "files", NOW)]


def token_in(data: Path, name: str) -> str:
    text = (data / "files" / f"{name}.json").read_bytes()
    return msgspec.json.decode(text, type=ConnectionFile).token


def owner_of(bench: Bench, token: str) -> tuple[str, str]:
    with bench.store.read() as connection:
        found = tokens.find_owner(connection, token, NOW)
    return found.name, found.role


def test_everybody_on_a_list_gets_a_file_that_opens_his_account(
    bench: Bench, data: Path
) -> None:
    assert imported(bench, data) == ["ada2", "ben", "cleo"]
    assert owner_of(bench, token_in(data, "ben")) == ("ben", "auditor")
    lines = {one.name: one for one in accounts.list_accounts(bench.store, NOW)}
    assert [lines[name].group for name in ("ada2", "ben", "cleo")] == ["bio", "", "bio"]
    assert (data / "files" / "ben.json").stat().st_mode & 0o777 == 0o600
    (own,) = access.list_tokens(bench.store, "ada2")
    assert own.expires_at == NOW + 30 * tokens.DAY_S


def test_list_that_is_run_again_makes_nothing_twice(bench: Bench, data: Path) -> None:
    imported(bench, data)
    before = [token_in(data, name) for name in ("ada2", "ben", "cleo")]
    noted = len(acts(bench))
    assert imported(bench, data) == []
    assert [token_in(data, name) for name in ("ada2", "ben", "cleo")] == before
    assert len(acts(bench)) == noted


def test_run_that_was_cut_off_is_finished_by_the_next(
    bench: Bench, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = ConnectionFile.write

    def write_but_bens(file: ConnectionFile, place: Path) -> None:
        if place.name == "ben.json":
            raise OSError(28, "no space")
        write(file, place)

    monkeypatch.setattr(ConnectionFile, "write", write_but_bens)
    with pytest.raises(OSError, match="no space"):
        imported(bench, data)
    monkeypatch.undo()
    assert imported(bench, data) == ["ben", "cleo"]


def test_file_that_cannot_be_written_leaves_no_token(
    bench: Bench, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_file: ConnectionFile, place: Path) -> None:
        raise OSError(28, "no space", str(place))

    monkeypatch.setattr(ConnectionFile, "write", refuse)
    with pytest.raises(OSError, match="no space"):
        imported(bench, data)
    assert [one.name for one in accounts.list_accounts(bench.store, NOW)] == ["ada"]


def test_file_whose_token_was_revoked_is_written_anew(bench: Bench, data: Path) -> None:
    imported(bench, data)
    old = token_in(data, "ben")
    access.revoke(bench.store, "ben", "", NOW)
    assert imported(bench, data) == ["ben"]
    assert owner_of(bench, token_in(data, "ben")) == ("ben", "auditor")
    with pytest.raises(DeniedError):
        owner_of(bench, old)


def test_role_and_group_become_the_lists(bench: Bench, data: Path) -> None:
    imported(bench, data)
    changed = LIST.replace("ben,auditor,,", "ben,operator,chem,")
    assert imported(bench, data, changed) == []
    assert owner_of(bench, token_in(data, "ben")) == ("ben", "operator")
    assert accounts.list_accounts(bench.store, NOW)[2].group == "chem"


def test_reviewers_token_stays_a_reviewers(bench: Bench, data: Path) -> None:
    with bench.store.write() as connection:
        token = tokens.issue_token(connection, "ben", Role.REVIEWER, NOW)
    imported(bench, data)
    assert owner_of(bench, token) == ("ben", "reviewer")


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", ["1 to 1000 people, not 0"]),
        ("name\n", ["1 to 1000 people, not 0"]),
        ("group\nbio\n", ["line 2", "`name`"]),
        ("name,salary\nada2,1\n", ["line 2", "`salary`"]),
        ("name\n" + "".join(f"p{n}\n" for n in range(1001)), ["not 1001"]),
        ("name\nada2,x\n", ["line 2", "`more`"]),
        ("name\n../../etc\nben\n-x\n", ["line 2", "line 4"]),
        ("name\nBen\nben\n", ["line 3: ben stands twice"]),
        ("name,role\nben,reviewer\n", ["line 2", "$.role"]),
        ("name,role\nben,king\nada2,\n", ["line 2", "'king'"]),
        ("name,days\nben,0\nada2,x\ncleo,99999\n", ["line 2", "line 3", "line 4"]),
        ("name,group\nben,a b\n", ["line 2", "$.group"]),
        ('name\n"ben\n', ["unexpected end"]),
        ("name\nb\0n\n", ["line 2"]),
    ],
)
def test_every_fault_of_a_list_is_named(text: str, faults: list[str]) -> None:
    with pytest.raises(UsageError, match="STO-U004") as caught:
        people.read_people(text)
    assert all(fault in caught.value.message for fault in faults)


def test_many_faults_are_counted() -> None:
    with pytest.raises(UsageError, match="and 30 more"):
        people.read_people("name\n" + "- \n" * 50)


def test_list_with_one_fault_makes_nobody(bench: Bench, data: Path) -> None:
    with pytest.raises(UsageError):
        imported(bench, data, LIST + "x y,,,\n")
    assert not (data / "files").exists()
    assert [one.name for one in accounts.list_accounts(bench.store, NOW)] == ["ada"]


def test_strange_file_of_a_persons_name_stops_all_before_anybody_is_made(
    bench: Bench, data: Path
) -> None:
    (data / "files").mkdir()
    (data / "files" / "cleo.json").write_text("my thesis")
    with pytest.raises(UsageError, match=r"cleo\.json is no connection file"):
        imported(bench, data)
    assert (data / "files" / "cleo.json").read_text() == "my thesis"
    assert [one.name for one in accounts.list_accounts(bench.store, NOW)] == ["ada"]


def test_each_row_of_a_list_is_a_leaf(bench: Bench, data: Path) -> None:
    imported(bench, data)
    made = [one for one in acts(bench) if one.act is OperatorAct.TOKEN_ISSUED]
    assert len({one.subject for one in made}) == 4  # the bench's own among them
