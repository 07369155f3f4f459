import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from stoilo.cli import keys as module
from stoilo.cli.keys import open_key_file, read_public_file
from stoilo.cli.main import cli
from stoilo.cli.release.keys import keygen
from stoilo.core.boinc.codesign import (
    check_boinc_signature,
    md5_hex,
    parse_boinc_public,
)
from stoilo.core.errors import StoiloError, UsageError
from stoilo.signer.development.root import create_development_root
from stoilo.signer.offline_keys import create_key, render_public_file
from stoilo.signer.process.online_keys import parse_online_keys
from tests.support.gate import INSTALLED, NOW
from tests.support.stage import EASY, PASSPHRASE


def pipe_with(text: str) -> int:
    """Return an open descriptor that gives `text`."""
    out, into = os.pipe()
    os.write(into, text.encode())
    os.close(into)
    return out


def make(folder: Path, *more: str, role: str = "root") -> Result:
    descriptor = pipe_with(PASSPHRASE + "\n")
    try:
        return CliRunner().invoke(
            cli,
            [
                "release",
                "keygen",
                "--role",
                role,
                "--name",
                "ada",
                "--output",
                str(folder),
                "--rehearsal",
                "--passphrase-fd",
                str(descriptor),
                *more,
            ],
        )
    finally:
        os.close(descriptor)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], str]], None]:
    """Answer every prompt by a function of what is asked."""

    def set_answers(reply: Callable[[str], str]) -> None:
        shown: list[str] = []
        echo = click.echo

        def remember(message: object = None, **more: bool) -> None:
            shown.append(str(message))
            echo(message, **more)

        def prompt(text: str, **_: object) -> str:
            return reply("\n".join([*shown, text]))

        monkeypatch.setattr(module.click, "echo", remember)
        monkeypatch.setattr(module.click, "prompt", prompt)

    return set_answers


def read_from_paper(asked: str) -> str:
    """Answer as somebody who wrote the fingerprint down."""
    if "Passphrase" in asked.rsplit("\n", 1)[-1]:
        return PASSPHRASE
    groups = re.findall(r"^  ((?:[0-9a-f]{4}\s+){15}[0-9a-f]{4})$", asked, re.MULTILINE)
    number = int(re.findall(r"group (\d+)", asked)[-1])
    return str(groups[-1].split()[number - 1]).upper()


@pytest.mark.parametrize("role", ["root", "boinc", "builder"])
def test_key_opens_and_public_file_reads(tmp_path: Path, role: str) -> None:
    result = make(tmp_path, "--json", role=role)
    assert result.exit_code == 0, result.output
    row = json.loads(result.stdout)
    public = read_public_file(tmp_path / f"ada.{role}.pub")
    assert (public.role, public.name) == (role, "ada")
    assert row["fingerprint"] == public.fingerprint
    key = open_key_file(tmp_path / f"ada.{role}.key", pipe_with(PASSPHRASE))
    assert key.public == public


def test_private_files_are_private_and_say_nothing(tmp_path: Path) -> None:
    result = make(tmp_path)
    path = tmp_path / "ada.root.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert PASSPHRASE not in result.output + path.read_text()


def test_copy_is_the_same_key_on_another_medium(tmp_path: Path) -> None:
    result = make(tmp_path / "one", "--copy", str(tmp_path / "two"))
    assert "only copy" not in result.output
    for name in ("ada.root.key", "ada.root.pub"):
        copies = [(tmp_path / folder / name).read_bytes() for folder in ("one", "two")]
        assert copies[0] == copies[1]


def test_copy_on_the_same_medium_is_refused(tmp_path: Path) -> None:
    result = make(tmp_path, "--copy", str(tmp_path / "." / "x" / ".."))
    assert isinstance(result.exception, StoiloError)
    assert not list(tmp_path.glob("*.key"))


def test_key_is_never_overwritten(tmp_path: Path) -> None:
    make(tmp_path)
    before = (tmp_path / "ada.root.key").read_bytes()
    result = make(tmp_path)
    assert isinstance(result.exception, StoiloError)
    assert (tmp_path / "ada.root.key").read_bytes() == before


def test_short_passphrase_makes_no_key(tmp_path: Path) -> None:
    descriptor = pipe_with("tea\n")
    arguments = ["--role", "root", "--name", "ada", "--output", str(tmp_path)]
    result = CliRunner().invoke(
        cli,
        [
            "release",
            "keygen",
            *arguments,
            "--passphrase-fd",
            str(descriptor),
            "--rehearsal",
        ],
    )
    os.close(descriptor)
    assert isinstance(result.exception, StoiloError)
    assert result.exception.code == "STO-U003"
    assert list(tmp_path.iterdir()) == []


def test_descriptor_without_passphrase_is_a_usage_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        cli,
        [
            "release",
            "keygen",
            "--role",
            "root",
            "--name",
            "ada",
            "--output",
            str(tmp_path),
            "--passphrase-fd",
            "987",
            "--rehearsal",
        ],
    )
    assert isinstance(result.exception, StoiloError)
    assert result.exception.code == "STO-U003"


def test_fingerprint_typed_back_from_paper_makes_the_key(
    tmp_path: Path, answer: Callable[[Callable[[str], str]], None]
) -> None:
    answer(read_from_paper)
    arguments = ["--role", "root", "--name", "ada", "--output", str(tmp_path)]
    result = CliRunner().invoke(cli, ["release", "keygen", *arguments])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "ada.root.key").exists()


def test_fingerprint_that_nobody_read_makes_no_key(
    tmp_path: Path, answer: Callable[[Callable[[str], str]], None]
) -> None:
    answer(lambda asked: PASSPHRASE if asked.endswith("key") else "zzzz")
    arguments = ["--role", "root", "--name", "ada", "--output", str(tmp_path)]
    result = CliRunner().invoke(cli, ["release", "keygen", *arguments])
    assert isinstance(result.exception, StoiloError)
    assert result.exception.code == "STO-K069"
    assert list(tmp_path.iterdir()) == []


def test_mistyped_passphrase_may_be_typed_again(
    tmp_path: Path, answer: Callable[[Callable[[str], str]], None]
) -> None:
    make(tmp_path)
    tries = iter(["wrong", "wrong again", PASSPHRASE])
    answer(lambda _: next(tries))
    assert open_key_file(tmp_path / "ada.root.key", None).name == "ada"


def test_passphrase_is_never_an_argument() -> None:
    names = {name for one in keygen.params for name in one.opts}
    assert not {"--passphrase", "--password"} & names
    assert all(one.envvar is None for one in keygen.params)


def run(tmp_path: Path, new_role: str = "boinc") -> Result:
    old, _ = create_key("boinc", "old", PASSPHRASE, hardness=EASY)
    _, new = create_key(new_role, "new", PASSPHRASE, hardness=EASY)
    (tmp_path / "old.key").write_bytes(old)
    (tmp_path / "new.pub").write_bytes(render_public_file(new))
    out, into = os.pipe()
    os.write(into, PASSPHRASE.encode())
    os.close(into)
    try:
        return CliRunner().invoke(
            cli,
            [
                "release",
                "sign",
                str(tmp_path / "new.pub"),
                "--key",
                str(tmp_path / "old.key"),
                "--output",
                str(tmp_path / "keys"),
                "--passphrase-fd",
                str(out),
            ],
        )
    finally:
        os.close(out)


def test_old_key_vouches_for_the_new_one(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    texts = {path.name: path.read_text() for path in (tmp_path / "keys").iterdir()}
    old = parse_boinc_public(texts["old_key_0"])
    stripped = texts["code_sign_public"].strip().encode()
    check_boinc_signature(md5_hex(stripped), texts["signature_stripped_0"], old)


def test_key_of_another_role_is_no_successor(tmp_path: Path) -> None:
    result = run(tmp_path, "root")
    assert isinstance(result.exception, StoiloError)
    assert not (tmp_path / "keys").exists()


ORIGIN = "project.example/log"


def call(folder: Path, *more: str) -> Result:
    words = ["--data", str(folder / "data"), "--out", str(folder / "online.json")]
    words = ["release", "online-keys", *words, *more]
    return CliRunner().invoke(cli, words, catch_exceptions=False)


def test_file_for_the_ceremony_is_written_and_the_next_step_said(
    tmp_path: Path,
) -> None:
    result = call(tmp_path, "--origin", ORIGIN)
    keys = parse_online_keys((tmp_path / "online.json").read_bytes())
    assert keys.origin == ORIGIN
    assert "stoilo release init" in result.output
    assert keys.log_vkey in result.output


def test_no_private_key_is_printed_or_carried_away(tmp_path: Path) -> None:
    result = call(tmp_path, "--origin", ORIGIN, "--json")
    shown = result.output + (tmp_path / "online.json").read_text()
    for file in (tmp_path / "data" / "keys" / "online").iterdir():
        secret = file.read_text().split("\n")[1]
        assert secret not in shown


def test_second_call_needs_no_name_and_asks_for_more_epochs(tmp_path: Path) -> None:
    call(tmp_path, "--origin", ORIGIN, "--epochs", "2")
    result = call(tmp_path, "--epochs", "5", "--json")
    assert len(json.loads(result.output)["epochs"]) == 5


def test_name_may_come_from_the_server_s_settings(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "stoilo.toml").write_text(f'origin = "{ORIGIN}"\n')
    assert json.loads(call(tmp_path, "--json").output)["origin"] == ORIGIN


def test_project_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="STO-K090") as refusal:
        call(tmp_path)
    assert "--origin" in (refusal.value.hint or "")


def test_development_root_is_left_alone(tmp_path: Path) -> None:
    keys = tmp_path / "data" / "keys"
    (tmp_path / "data").mkdir()
    create_development_root(keys, ORIGIN, NOW, installed=INSTALLED)
    with pytest.raises(UsageError, match="STO-K091"):
        call(tmp_path, "--origin", ORIGIN)


def test_second_key_is_made_after_a_theft(tmp_path: Path) -> None:
    first = json.loads(call(tmp_path, "--origin", ORIGIN, "--json").output)
    second = json.loads(call(tmp_path, "--replace", "online", "--json").output)
    assert first["online"] != second["online"]
    assert first["log_vkey"] == second["log_vkey"]
