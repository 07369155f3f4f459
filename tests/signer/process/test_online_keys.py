import itertools
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import StoiloError, TrustError, UsageError
from stoilo.signer.development.root import create_development_root
from stoilo.signer.process.online_keys import (
    EPOCH_LIFE_S,
    EPOCH_STEP_S,
    OnlineKeys,
    awaits_ceremony,
    certified_online_key,
    find_key,
    make_online_keys,
    parse_online_keys,
    render_online_keys,
)
from tests.support.gate import INSTALLED

ORIGIN, NOW = "project.example/log", 1_800_000_000


@pytest.fixture
def made(tmp_path: Path) -> OnlineKeys:
    return make_online_keys(tmp_path / "keys", ORIGIN, NOW)


def test_file_reads_back_as_it_was_written(made: OnlineKeys) -> None:
    assert parse_online_keys(render_online_keys(made)) == made


def test_private_keys_stay_in_private_files(made: OnlineKeys, tmp_path: Path) -> None:
    files = [*(tmp_path / "keys").rglob("*.pem")]
    assert len(files) == 3 + len(made.epochs)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    text = render_online_keys(made)
    assert not any(line in text for file in files for line in file.read_bytes().split())


def test_second_call_makes_nothing_new(made: OnlineKeys, tmp_path: Path) -> None:
    assert make_online_keys(tmp_path / "keys", ORIGIN, NOW + 60) == made


def test_epochs_overlap_by_more_than_an_admission(made: OnlineKeys) -> None:
    starts = [epoch.not_before for epoch in made.epochs]
    steps = {b - a for a, b in itertools.pairwise(starts)}
    assert steps == {EPOCH_STEP_S}
    assert EPOCH_STEP_S + 14 * 86_400 < EPOCH_LIFE_S


def test_later_call_adds_epochs_and_drops_those_over(
    made: OnlineKeys, tmp_path: Path
) -> None:
    later = make_online_keys(tmp_path / "keys", ORIGIN, NOW + EPOCH_LIFE_S)
    assert [epoch.epoch for epoch in made.epochs] == [1, 2, 3, 4]
    assert later.epochs[0] == made.epochs[1]
    assert later.epochs[-1].not_before > NOW + EPOCH_LIFE_S + 2 * EPOCH_STEP_S


def test_after_a_long_pause_epochs_begin_now(made: OnlineKeys, tmp_path: Path) -> None:
    now = NOW + 20 * EPOCH_LIFE_S
    later = make_online_keys(tmp_path / "keys", ORIGIN, now)
    assert later.epochs[0].not_before <= now < later.epochs[0].not_after
    assert later.epochs[0].epoch == made.epochs[-1].epoch + 1


@pytest.mark.parametrize("role", ["online", "revocation"])
def test_replaced_key_is_asked_for_beside_the_old_one(
    made: OnlineKeys, tmp_path: Path, role: str
) -> None:
    keys = make_online_keys(tmp_path / "keys", ORIGIN, NOW, replace=(role,))
    assert getattr(keys, role) != getattr(made, role)
    assert (tmp_path / "keys" / "online" / f"{role}.pem").exists()
    assert make_online_keys(tmp_path / "keys", ORIGIN, NOW) == keys


def test_replaced_gate_keys_leave_the_old_epochs_out(
    made: OnlineKeys, tmp_path: Path
) -> None:
    keys = make_online_keys(tmp_path / "keys", ORIGIN, NOW, replace=("gate",))
    assert keys.epochs[0].epoch == made.epochs[-1].epoch + 1
    assert keys.epochs[0].not_before < NOW


def test_signing_key_is_the_one_that_the_root_names(tmp_path: Path) -> None:
    root = create_development_root(tmp_path / "keys", ORIGIN, NOW, installed=INSTALLED)
    old = certified_online_key(root.directory)
    (root.directory / "online" / "online-new.pem").write_bytes(
        (root.directory / "online" / "log.pem").read_bytes()
    )
    (root.directory / "online" / "online-new.pem").chmod(0o600)
    assert certified_online_key(root.directory).public == old.public


@pytest.mark.usefixtures("made")
def test_no_uncertified_key_signs(tmp_path: Path) -> None:
    with pytest.raises(TrustError, match="STO-K029"):
        find_key(tmp_path / "keys", "online", ())


def test_development_root_is_never_turned_into_a_released_one(tmp_path: Path) -> None:
    create_development_root(tmp_path / "keys", ORIGIN, NOW, installed=INSTALLED)
    with pytest.raises(UsageError, match="STO-K091"):
        make_online_keys(tmp_path / "keys", ORIGIN, NOW)


def test_keys_of_another_project_are_not_taken(
    made: OnlineKeys, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="STO-K090"):
        make_online_keys(tmp_path / "keys", f"{made.origin}2", NOW)


@pytest.mark.parametrize("epochs", [0, 14])
def test_impossible_number_of_epochs_is_refused(tmp_path: Path, epochs: int) -> None:
    with pytest.raises(UsageError, match="STO-K090"):
        make_online_keys(tmp_path / "keys", ORIGIN, NOW, epochs=epochs)


def test_directory_waits_for_its_ceremony(made: OnlineKeys, tmp_path: Path) -> None:
    assert made.epochs
    assert awaits_ceremony(tmp_path / "keys")
    (tmp_path / "keys" / "root.json").write_bytes(b"{}")
    assert not awaits_ceremony(tmp_path / "keys")


def test_one_key_for_two_uses_is_refused(made: OnlineKeys) -> None:
    twice = msgspec.structs.replace(made, revocation=made.online)
    with pytest.raises(TrustError, match="STO-K090"):
        parse_online_keys(render_online_keys(twice))


def test_log_key_of_another_project_is_refused(made: OnlineKeys) -> None:
    other = msgspec.structs.replace(made, origin="other.example/log")
    with pytest.raises(TrustError, match="STO-K090"):
        parse_online_keys(render_online_keys(other))


@given(st.binary(max_size=2000))
def test_any_bytes_end_in_our_error(data: bytes) -> None:
    with pytest.raises(StoiloError):
        parse_online_keys(data)
