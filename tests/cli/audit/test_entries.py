import json
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from stoilo.audit.format.policy import render_policy, succeed
from stoilo.audit.format.records import render_record
from stoilo.audit.read.reader import open_log
from stoilo.cli.audit.text import describe_entries, show_entry
from stoilo.cli.main import main
from tests.support.auditlog import SAMPLE_SOURCE, SampleLog, write_sample_log
from tests.support.faulty_log import LogKey, render_policies


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> SampleLog:
    return write_sample_log(tmp_path_factory.mktemp("cli") / "data", plain=5)


@pytest.fixture
def policy(sample: SampleLog, tmp_path: Path) -> str:
    (tmp_path / "policy.txt").write_bytes(render_policy(sample.policy))
    return str(tmp_path / "policy.txt")


def run(*words: str) -> int:
    return main(["audit", *words])


def test_show_tells_a_task_in_plain_words(
    sample: SampleLog, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--data", str(sample.data_dir), "--policy", policy]
    assert run("show", "task-0", *where, "--source") == 0
    text = capsys.readouterr().out
    assert "entry 5 of log.test/t: admission" in text
    assert "explained by: entry 6" in text
    assert "cosigned by: w at 2027-" in text
    assert "    def f(a):" in text
    assert "key came from the log itself" not in text


def test_show_as_json_is_one_object(
    sample: SampleLog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("show", "7", "--data", str(sample.data_dir), "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    (entry,) = answer["entries"]
    assert (entry["index"], entry["kind"], entry["size"]) == (7, "result", 18)
    assert entry["record"]["admission"] == 5
    assert entry["proof"].startswith("c2sp.org/tlog-proof@v1\nextra ")


@pytest.mark.parametrize(("name", "code"), [("task-9", 2), ("18", 6), ("4", 0)])
def test_show_of_what_is_not_there_says_so(
    sample: SampleLog, name: str, code: int
) -> None:
    assert run("show", name, "--data", str(sample.data_dir)) == code


def test_search_prints_rows_and_counts(
    sample: SampleLog, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["kind:result", "--limit", "2", "--data", str(sample.data_dir)]
    assert run("show", *words) == 0
    text = capsys.readouterr().out
    assert "2 of 18 entries, 2 more match" in text
    assert run("show", *words, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert [one["index"] for one in answer["found"]] == [7, 10]
    assert (answer["more"], answer["searched"]) == (2, 18)


def test_bad_search_exits_2(sample: SampleLog) -> None:
    assert run("show", "hello:", "--data", str(sample.data_dir)) == 2


@pytest.fixture
def evidence(sample: SampleLog, tmp_path: Path) -> Path:
    entry = open_log(sample.data_dir).entry(6)
    (tmp_path / "6.tlog-proof").write_bytes(entry.proof)
    (tmp_path / "record").write_bytes(render_record(entry.record))
    (tmp_path / "source").write_bytes(SAMPLE_SOURCE)
    return tmp_path


def test_check_verifies_an_entry_without_the_log(
    evidence: Path, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [f"--{name}={evidence / name}" for name in ("record", "source")]
    proof = str(evidence / "6.tlog-proof")
    assert run("check", proof, "--policy", policy, *files, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verified"], answer["index"]) == (True, 6)
    assert answer["record"]["public_source"] is True
    assert run("check", proof, "--policy", policy) == 0
    assert "proven under: the checkpoint of 18 leaves" in capsys.readouterr().out


def test_check_of_a_forged_proof_exits_4(
    evidence: Path, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    proof = evidence / "6.tlog-proof"
    proof.write_bytes(proof.read_bytes().replace(b"index 6", b"index 7"))
    assert run("check", str(proof), "--policy", policy, "--json") == 4
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verified"], answer["error"]["code"]) == (False, "STO-L020")
    other = LogKey("log.test/t", b"\4" * 32).vkey
    assert run("check", str(proof), "--policy", other) == 4


def test_check_needs_a_policy_and_a_readable_proof(evidence: Path, policy: str) -> None:
    assert run("check", str(evidence / "6.tlog-proof")) == 2
    assert run("check", str(evidence / "absent"), "--policy", policy) == 2
    assert run("check", "http://127.0.0.1:9/x", "--policy", policy) == 7


def test_check_accepts_what_an_older_policy_accepted(
    sample: SampleLog, evidence: Path
) -> None:
    other = LogKey("log.test/t", b"\4" * 32).policy
    aged = succeed(sample.policy, other, now=2**33, size=sample.size)
    (evidence / "aged").write_bytes(render_policies(aged))
    (evidence / "current").write_bytes(render_policy(aged))
    proof = str(evidence / "6.tlog-proof")
    assert run("check", proof, "--policy", str(evidence / "aged")) == 0
    assert run("check", proof, "--policy", str(evidence / "current")) == 4


def test_export_makes_what_verify_accepts(
    sample: SampleLog, policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "log-copy")
    words = ["--data", str(sample.data_dir), "--policy", policy, "--sources", "all"]
    assert run("export", target, *words, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["size"], answer["records"], answer["sources"]) == (18, 9, 1)
    assert run("verify", target, "--policy", policy) == 0
    assert run("show", "task-0", "--data", target, "--policy", policy) == 0
    assert run("export", target, *words) == 2


def test_export_of_a_wrong_source_list_exits_2(
    sample: SampleLog, tmp_path: Path
) -> None:
    words = ["--data", str(sample.data_dir), "--sources", "some"]
    assert run("export", str(tmp_path / "b"), *words) == 2


def test_hostile_text_is_shown_escaped(sample: SampleLog) -> None:
    """A published source may hold what would command a terminal."""
    log = open_log(sample.data_dir)
    shown = show_entry(log, log.entry(6), with_source=True)
    assert shown.source == SAMPLE_SOURCE
    hostile = "\x1b[2J\u202eevil"
    head = replace(shown.signed.checkpoint, origin=hostile)
    signed = replace(shown.signed, checkpoint=head)
    text = describe_entries([replace(shown, source=hostile.encode(), signed=signed)])
    assert "evil" in text
    assert not {"\x1b", "\u202e"} & set(text)


def test_proof_from_a_server_that_cuts_its_answer_is_no_traceback(
    policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.0 200 OK\r\ncontent-length: 9\r\n\r\nx")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        assert run("check", url, "--policy", policy) == 7
        thread.join()
    assert "STO-L002" in capsys.readouterr().err
