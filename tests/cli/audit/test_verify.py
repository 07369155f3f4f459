import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from stoilo.audit.format.policy import render_policy
from stoilo.audit.format.proof import Leaf, LeafKind, check_proof, render_leaf
from stoilo.audit.log.sequencer import Sequencer
from stoilo.cli.main import main
from stoilo.core.codebook import load_codebook
from stoilo.core.digests import content_digest
from tests.support.faulty_log import LogKey

KEY = LogKey("log.test/t")
ADMISSION = render_leaf(Leaf(LeafKind.ADMISSION, content_digest(b"s"), "1", 5))
RESULT = render_leaf(Leaf(LeafKind.RESULT, content_digest(b"r"), "1", 6))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    with Sequencer.open(
        tmp_path / "data", "log.test/t", KEY.sign, policy=KEY.policy
    ) as log:
        log.append(b"other")
        log.append(ADMISSION, "task-1")
        log.append(RESULT, "task-1")
    return tmp_path / "data"


def test_sound_log_exits_0(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "verify", str(data_dir)]) == 0
    assert "3 leaves" in capsys.readouterr().out


def test_sound_log_as_json(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["audit", "verify", str(data_dir), "--policy", KEY.vkey, "--json"]
    assert main(arguments) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verified"], answer["size"], answer["own_policy"]) == (
        True,
        3,
        False,
    )


def test_policy_may_be_a_file(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "policy").write_bytes(render_policy(KEY.policy))
    given = ["--policy", str(tmp_path / "policy")]
    assert main(["audit", "verify", str(data_dir), *given]) == 0


def test_tampered_log_exits_4(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tile = data_dir / "audit/log/tile/0/000.p/3"
    tile.write_bytes(bytes(96))
    assert main(["audit", "verify", str(data_dir)]) == 4
    assert "STO-L032" in capsys.readouterr().err
    assert main(["audit", "verify", str(data_dir), "--json"]) == 4
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verified"], answer["error"]["code"]) == (False, "STO-L032")


def test_other_key_exits_4(data_dir: Path) -> None:
    other = LogKey("log.test/t", b"\4" * 32).vkey
    assert main(["audit", "verify", str(data_dir), "--policy", other]) == 4


@pytest.mark.parametrize("extra", [["--policy", "/absent"], ["--policy", "a+b+c"]])
def test_bad_policy_exits_2(data_dir: Path, extra: list[str]) -> None:
    assert main(["audit", "verify", str(data_dir), *extra]) == 2


def test_no_log_exits_2(tmp_path: Path) -> None:
    assert main(["audit", "verify", str(tmp_path)]) == 2
    assert main(["audit", "verify", str(tmp_path / "absent")]) == 2


def test_unreachable_log_exits_7() -> None:
    assert main(["audit", "verify", "http://127.0.0.1:9/"]) == 7


@pytest.mark.parametrize(("name", "index"), [("task-1", 1), ("0", 0), ("2", 2)])
def test_proof_of_a_task_or_index_is_printed(
    data_dir: Path, capsysbinary: pytest.CaptureFixture[bytes], name: str, index: int
) -> None:
    assert main(["audit", "prove", name, "--data", str(data_dir)]) == 0
    leaf = [b"other", ADMISSION, RESULT][index]
    assert check_proof(capsysbinary.readouterr().out, leaf, KEY.policy).index == index


def test_proof_as_json_holds_the_leaf(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "prove", "task-1", "--data", str(data_dir), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert base64.b64decode(answer["leaf"]) == ADMISSION
    check_proof(answer["proof"].encode(), ADMISSION, KEY.policy)


@pytest.mark.parametrize(("name", "code"), [("task-9", 2), ("99", 6)])
def test_unknown_task_or_index_is_refused(data_dir: Path, name: str, code: int) -> None:
    assert main(["audit", "prove", name, "--data", str(data_dir)]) == code


def test_proof_beside_a_running_writer(tmp_path: Path) -> None:
    with Sequencer.open(
        tmp_path / "data", "log.test/t", KEY.sign, policy=KEY.policy
    ) as log:
        log.wait_published(log.append(ADMISSION, "task-1"), 60)
        command = [sys.executable, "-m", "stoilo", "audit", "prove", "task-1"]
        done = subprocess.run(
            [*command, "--data", str(tmp_path / "data")],
            capture_output=True,
            check=True,
        )
        assert check_proof(done.stdout, ADMISSION, KEY.policy).index == 0


def test_every_code_of_the_log_has_a_page() -> None:
    import stoilo.audit  # noqa: PLC0415

    folder = Path(stoilo.audit.__path__[0])
    import re  # noqa: PLC0415

    used = {
        code
        for path in folder.rglob("*.py")
        for code in re.findall(r'"(STO-L\d{3})"', path.read_text())
    }
    assert used <= set(load_codebook())
    assert len(used) > 30


@pytest.mark.parametrize("name", [b"w\xc2\x9b31m", b"w\xff", b"w\xe2\x80\xae"])
def test_names_in_a_stranger_s_own_policy_command_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: bytes
) -> None:
    key = LogKey("log.test/t", witness_time=100)
    with Sequencer.open(tmp_path, key.origin, key.sign, policy=key.policy) as log:
        log.wait_published(log.append(b"leaf"), 60)
    bent = render_policy(key.policy).replace(b"witness w ", b"witness %b " % name)
    log_directory = tmp_path / "audit" / "log"
    (log_directory / "policy.txt").write_bytes(
        bent.replace(b"quorum w", b"quorum none")
    )
    assert main(["audit", "verify", str(log_directory)]) == 0
    assert "cosigned by w\\" in (text := capsys.readouterr().out)
    assert text.replace("\n", "").isprintable()


def test_stray_file_s_name_is_shown_on_one_harmless_line(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data_dir / "audit" / "\x1b[2Jx\nfault: y.sqlite").write_bytes(b"mine" * 300)
    assert main(["audit", "verify", "--all", str(data_dir)]) == 4
    text = capsys.readouterr().out
    assert "\\x1b[2Jx\\n" in text
    assert text.replace("\n", "").isprintable()
