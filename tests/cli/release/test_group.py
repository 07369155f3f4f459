"""A release by its commands: three people, each with one key on one machine at a time."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import msgspec
import pytest

from stoilo.cli.main import main
from stoilo.executor.verifier.trust import load_trust
from stoilo.signer.offline_keys import Hardness, create_key, render_public_file
from stoilo.signer.process.online_keys import make_online_keys, render_online_keys
from stoilo.signer.release_pack import read_release
from tests.signer.ceremony.test_policy_flavors import build
from tests.support.ceremony import DAY_S, NOW, ORIGIN, PEOPLE
from tests.support.gate import INSTALLED

WORDS = "six words drawn by dice, no fewer"
EASY = Hardness(memory_kib=64, passes=1, lanes=1)
SINGLE = ("gate", "policy", "reviewers", "revocation")
ALL = ("root", "targets", *SINGLE)
Run = Callable[..., str]
# Each module looks the clock up for itself.
MODULES = ("init", "request", "review", "sign", "verify", "ceremony_folder")


def make_key(folder: Path, role: str, name: str) -> Path:
    """Write a key as `stoilo release keygen` does, without its cost."""
    private, public = create_key(role, name, WORDS, hardness=EASY)
    path = folder / f"{name}.{role}"
    path.with_name(f"{path.name}.key").write_bytes(private)
    path.with_name(f"{path.name}.pub").write_bytes(render_public_file(public))
    return path.with_name(f"{path.name}.pub")


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everybody's keys; in life each lies on a medium of its own."""
    folder = tmp_path_factory.mktemp("people")
    for role in ("root", "targets"):
        for name in PEOPLE:
            make_key(folder, role, name)
    for role in SINGLE:
        make_key(folder, role, "ada")
    for name in ("ada", "ben"):
        make_key(folder, "builder", name)
    return folder


@pytest.fixture(scope="session")
def template(people: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's data with its first release, and what it was before."""
    folder = tmp_path_factory.mktemp("first")
    shutil.copytree(people, folder / "people")
    with pytest.MonkeyPatch.context() as patch:
        enter(folder, patch)
        online = make_online_keys(folder / "data" / "keys", ORIGIN, NOW)
        (folder / "online.json").write_bytes(render_online_keys(online))
        shutil.copytree(folder / "data", folder / "empty")
        publish_first(checked_run)
    return folder


def enter(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Stand in `folder`; the clock stands too."""
    for module in MODULES:
        patch.setattr(f"stoilo.cli.release.{module}.clock", lambda: NOW)
    patch.chdir(folder)


def checked_run(*words: str, code: int = 0, key: str = "") -> str:
    """Run one command of `stoilo release`, which ends as expected; returns its text."""
    arguments, reader = ["release", *words], -1
    if key:
        reader, writer = os.pipe()
        os.write(writer, WORDS.encode() + b"\n")
        os.close(writer)
        arguments += ["--key", f"people/{key}.key", "--passphrase-fd", str(reader)]
    with redirect_stdout(StringIO()) as out, redirect_stderr(out):
        found = main(arguments)
    if key:
        os.close(reader)
    assert found == code, out.getvalue()
    return out.getvalue()


@pytest.fixture
def place(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The people and a server whose first release is published."""
    shutil.copytree(template, tmp_path / "place")
    enter(tmp_path / "place", monkeypatch)
    return tmp_path / "place"


@pytest.fixture
def run(place: Path) -> Run:
    """Run commands where the release is."""
    del place
    return checked_run


def first(run: Run, *more: str, folder: str = "stick") -> None:
    """Propose a first release in `folder`."""
    words: list[str] = []
    for role in ("root", "targets"):
        for name in PEOPLE:
            words += [f"--{role}", f"people/{name}.{role}.pub"]
    for role in SINGLE:
        words += [f"--{role}", f"people/ada.{role}.pub"]
    run("init", folder, *words, "--online", "online.json", *more)


def sign_all(run: Run, folder: str, *names: str) -> None:
    """Have enough people sign everything that is proposed in `folder`."""
    digest = json.loads(run("review", folder, "--json"))["digest"]
    for name in names or (
        *(f"{who}.{role}" for who in ("ada", "ben") for role in ("root", "targets")),
        *(f"ada.{role}" for role in SINGLE),
    ):
        run("sign", folder, "--expect", digest, key=name)


def publish_first(run: Run) -> None:
    """Propose, sign and publish the first release."""
    first(run)
    sign_all(run, "stick")
    run("publish", "stick", "--data", "data")


def test_first_release_works_on_the_first_try(run: Run, place: Path) -> None:
    """The template is what the commands made; nothing was corrected between them."""
    keys = place / "data" / "keys"
    root = (keys / "root.json").read_bytes()
    trust = load_trust(read_release(keys), root, NOW, installed=INSTALLED)
    assert (trust.origin, len(trust.epochs)) == (ORIGIN, 4)
    status = run("review", "data")
    assert "2 of 3: ada" in status
    transcript = (keys / "transcript.jsonl").read_text().splitlines()
    acts = [json.loads(line)["act"] for line in transcript]
    assert acts == ["init", *["sign"] * 8]


def test_every_step_names_the_next_command(run: Run) -> None:
    first(run, folder="fresh")
    digest = json.loads(run("review", "fresh", "--json"))["digest"]
    assert "Next: stoilo release sign" in run("review", "fresh")
    assert "ben (root)" in run("sign", "fresh", "--expect", digest, key="ada.root")


def test_three_copies_are_signed_apart_and_combined(run: Run, place: Path) -> None:
    run("request", "s2", "--release", "data", "--renew", "root", "--renew", "targets")
    for name in ("ada", "ben"):
        shutil.copytree(place / "s2", place / name)
        sign_all(run, name, f"{name}.root", f"{name}.targets")
    found = json.loads(run("review", "ada", "ben", "--json"))
    assert found["complete"]
    assert "[STO-K068]" in run("publish", "ada", "--data", "data", code=4)
    run("publish", "ben", "ada", "--data", "data")
    assert "root 2: ok" in run("review", "data")


def test_one_key_is_replaced_by_command(run: Run, place: Path) -> None:
    make_key(place / "people", "root", "dora")
    text = run(
        *("request", "s2", "--release", "data", "--role", "root"),
        *("--out", "people/cleo.root.pub", "--in", "people/dora.root.pub"),
    )
    assert "+ dora" in text
    assert "- cleo" in text
    sign_all(run, "s2", "ada.root", "dora.root")
    assert "[STO-K068]" in run("publish", "s2", "--data", "data", code=4)
    sign_all(run, "s2", "ben.root")
    run("publish", "s2", "--data", "data")
    assert "dora" in run("review", "data")


def test_withdrawn_flavor_and_epoch_are_shown(run: Run) -> None:
    flavor = f"flavor={'1' * 64}"
    words = ("--withdraw", flavor, "--withdraw", "epoch=2")
    text = run("request", "s2", "--release", "data", *words)
    assert f"+ withdrawn flavor {'1' * 64}" in text
    assert "+ withdrawn gate epoch 2" in text
    sign_all(run, "s2", "ada.revocation")
    run("publish", "s2", "--data", "data")
    back = run("request", "s3", "--release", "data", "--allow", "epoch=2")
    assert "would be allowed again" in back


def test_key_leaves_the_role_that_it_was_made_for(run: Run) -> None:
    words = ("--withdraw", "key=people/cleo.targets.pub")
    text = run("request", "s2", "--release", "data", *words, code=2)
    assert "[STO-K053]" in text  # targets needs three
    boinc = ("--withdraw", "digest=" + "2" * 64, "--settle", "3")
    assert "+ online statements settled to 3" in run(
        "request", "s3", "--release", "data", *boinc
    )


def test_flavor_is_asked_for_from_the_policy_role_alone(run: Run, place: Path) -> None:
    build(place / "dist")
    run("request", "s2", "--release", "data", "--flavors", "dist")
    found = json.loads(run("review", "s2", "--json", code=4))
    assert [one["role"] for one in found["roles"]] == ["policy"]
    problems = [one["message"] for one in found["problems"]]
    assert any("2 must sign for the policy role" in one for one in problems)


def test_several_things_are_asked_for_in_one_folder(run: Run, place: Path) -> None:
    (place / "reviewers.json").write_text(
        json.dumps({"keys": [{"key": "1" * 64, "name": "rita"}]})
    )
    run("request", "s2", "--release", "data", "--floor", "verifier=3")
    found = json.loads(
        run(
            "request",
            "s2",
            "--reviewers",
            "reviewers.json",
            "--renew",
            "gate",
            "--json",
        )
    )
    roles = [(one["role"], one["new_version"]) for one in found["roles"]]
    assert roles == [("targets", 2), ("gate", 2), ("reviewers", 2)]


def test_new_epochs_are_certified(run: Run, place: Path) -> None:
    later = make_online_keys(place / "data" / "keys", ORIGIN, NOW, epochs=6)
    (place / "online.json").write_bytes(render_online_keys(later))
    text = run("request", "s2", "--release", "data", "--online", "online.json")
    assert "+ gate epoch 6" in text


def test_attestations_that_were_there_first_stay(run: Run, place: Path) -> None:
    folder = place / "s2" / "builds" / "verifier" / "x86_64-linux"
    folder.mkdir(parents=True)
    (folder / "00112233.json").write_bytes(b"{}")
    run("request", "s2", "--release", "data", "--renew", "policy")
    assert (folder / "00112233.json").exists()
    (place / "s3").mkdir()
    (place / "s3" / "other").touch()
    text = run("request", "s3", "--release", "data", "--renew", "policy", code=2)
    assert "[STO-K050]" in text


def test_what_does_not_change_is_no_ceremony(run: Run, place: Path) -> None:
    text = run("request", "s2", "--release", "data", code=2)
    assert "[STO-K054]" in text
    assert not (place / "s2").exists()


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "no folder": (("review", "nothing"), "STO-K052"),
    "folder in use": (("request", "fresh", "--release", "data"), "STO-K050"),
    "nothing to build on": (("request", "s2"), "STO-K050"),
    "no such release": (("request", "s2", "--release", "people"), "STO-K052"),
    "no place": (("publish", "fresh"), "STO-U003"),
    "unsigned": (("publish", "fresh", "--data", "empty"), "STO-K068"),
    "bad floor": (
        ("request", "fresh", "--floor", "verifier"),
        "STO-U003",
    ),
    "nothing withdrawn": (("request", "fresh", "--withdraw", "epoch=x"), "STO-U003"),
    "nothing rotated": (("request", "fresh", "--role", "root"), "STO-U003"),
    "keys of no role": (("request", "fresh", "--threshold", "3"), "STO-U003"),
    "key of another role": (
        ("request", "fresh", "--role", "root", "--in", "people/ada.gate.pub"),
        "STO-K053",
    ),
    "server without keys": (("publish", "fresh", "--data", "elsewhere"), "STO-K068"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_misuse_is_refused_by_code_and_says_what_next(run: Run, name: str) -> None:
    first(run, folder="fresh")
    words, code = REFUSED[name]
    text = run(*words, code=4 if name == "unsigned" else 2)
    assert f"[{code}]" in text


def test_sign_asks_for_the_digest_and_believes_nothing_else(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    first(run, folder="fresh")
    monkeypatch.setattr("click.prompt", lambda *_, **__: "wxyz")
    assert "[STO-K069]" in run("sign", "fresh", key="ada.root", code=4)
    assert "[STO-K069]" in run(
        "sign", "fresh", "--expect", "1" * 64, key="ada.root", code=4
    )
    assert "[STO-U003]" in run("sign", "fresh", "--yes", key="ada.root", code=2)
    digest = json.loads(run("review", "fresh", "--json"))["digest"]
    groups = [digest[at : at + 4] for at in range(0, 64, 4)]

    def read_aloud(prompt: str, **_: object) -> str:
        return groups[int(prompt.split()[1]) - 1]

    monkeypatch.setattr("click.prompt", read_aloud)
    assert "signed by ada (root)" in run("sign", "fresh", key="ada.root")


def test_proposal_that_shares_the_first_digits_is_not_taken_for_the_other(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    first(run, folder="fresh")
    digest = json.loads(run("review", "fresh", "--json"))["digest"]
    expected = [digest[:4], digest[4:8], *["wxyz"] * 14]  # on the proposer's screen
    monkeypatch.setattr("secrets.randbelow", lambda bound: bound - 1)
    monkeypatch.setattr(
        "click.prompt", lambda prompt, **_: expected[int(prompt.split()[1]) - 1]
    )
    assert "[STO-K069]" in run("sign", "fresh", key="ada.root", code=4)


def test_forged_release_below_is_signed_by_nobody_who_knows_the_first_root(
    run: Run, place: Path
) -> None:
    run("request", "s2", "--release", "data", "--renew", "targets")
    memory = place / "people" / "ada.targets.key.signed"
    document = json.loads(memory.read_bytes())
    assert len(document["first_root"]) == 64
    memory.write_text(json.dumps(document | {"first_root": "1" * 64}))
    digest = json.loads(run("review", "s2", "--json"))["digest"]
    words = ("sign", "s2", "--expect", digest)
    assert "[STO-K066]" in run(*words, key="ada.targets", code=4)


def test_rehearsal_is_signed_without_asking_and_marked(run: Run) -> None:
    first(run, "--rehearsal", folder="fresh")
    Path("people/ada.root.key.signed").unlink()  # a rehearsal has keys of its own
    assert "REHEARSAL" in run("sign", "fresh", "--yes", key="ada.root")


def test_folder_with_a_problem_is_signed_by_nobody(run: Run, place: Path) -> None:
    first(run, folder="fresh")
    about = place / "fresh" / "ceremony.json"
    document = json.loads(about.read_bytes()) | {"created": NOW - 40 * DAY_S}
    about.write_text(json.dumps(document))
    assert "[STO-K058]" in run("review", "fresh", code=4)
    assert "[STO-K058]" in run("sign", "fresh", "--yes", key="ada.root", code=4)


def test_second_file_of_a_version_is_not_signed_by_the_same_key(
    run: Run, place: Path
) -> None:
    for folder, floor in (("s2", "verifier=2"), ("s3", "verifier=3")):
        run("request", folder, "--release", "data", "--floor", floor)
    sign_all(run, "s2", "ada.targets")
    digest = json.loads(run("review", "s3", "--json"))["digest"]
    refused = run("sign", "s3", "--expect", digest, key="ada.targets", code=4)
    assert "[STO-K066]" in refused
    run("sign", "s3", "--expect", digest, "--replace", key="ada.targets")
    assert (place / "people" / "ada.targets.key.signed").exists()


def test_first_root_is_compared_with_ones_own(run: Run, place: Path) -> None:
    run("request", "s2", "--release", "data", "--renew", "policy")
    run("review", "s2", "--root", "data/keys/root.json")
    shutil.copytree(place / "data" / "keys" / "metadata", place / "m")
    (place / "other.json").write_bytes((place / "m" / "1.targets.json").read_bytes())
    assert "STO-K05" in run("review", "s2", "--root", "other.json", code=4)


def test_status_ends_with_4_when_something_has_expired(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for days, code, said in (
        (5, 0, "timestamp expires"),
        (8, 4, "timestamp expired"),
    ):
        now = NOW + days * DAY_S
        monkeypatch.setattr("stoilo.cli.release.review.clock", lambda now=now: now)
        assert said in run("review", "data", code=code)


def test_gate_epochs_that_run_out_are_said_long_before(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoilo.cli.release.review.clock", lambda: NOW + 40 * DAY_S)
    text = run("review", "data", code=4)  # nobody signed the timestamp meanwhile
    assert "the last gate epoch ends" in text


def test_release_of_another_online_key_is_not_published_here(
    run: Run, place: Path
) -> None:
    before = sorted(path.name for path in (place / "data/keys/metadata").iterdir())
    other = make_online_keys(place / "other", ORIGIN, NOW)
    (place / "online.json").write_bytes(render_online_keys(other))
    run("request", "s2", "--release", "data", "--online", "online.json")
    assert "[STO-K068]" in run("publish", "s2", "--data", "data", code=2)
    after = sorted(path.name for path in (place / "data/keys/metadata").iterdir())
    assert before == after


def test_folder_can_be_read_by_the_next_person(run: Run, place: Path) -> None:
    run("request", "s2", "--release", "data", "--renew", "policy")
    for path in (place / "s2").rglob("*"):
        assert path.stat().st_mode & 0o044 == 0o044, path


def test_every_answer_is_one_json_object_when_asked(run: Run) -> None:
    for words in (
        ("review", "data"),
        ("request", "s2", "--release", "data", "--renew", "all"),
        ("review", "s2"),
    ):
        assert isinstance(msgspec.json.decode(run(*words, "--json")), dict)
