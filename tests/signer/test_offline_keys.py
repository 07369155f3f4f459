import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, TrustError, UsageError
from stoilo.signer.offline_keys import (
    HARD,
    KEY_ROLES,
    Hardness,
    check_typed_back,
    choose_groups,
    create_key,
    fingerprint,
    open_key,
    parse_public_file,
    render_public_file,
)

EASY = Hardness(memory_kib=64, passes=1, lanes=1)
WORDS = "six words drawn by dice, no fewer"
PRIVATE, PUBLIC = create_key("root", "ada", WORDS, hardness=EASY)


def edited(**fields: object) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(PRIVATE), **fields})


def refusal(data: bytes, passphrase: str = WORDS) -> str:
    with pytest.raises(TrustError) as caught:
        open_key(data, passphrase)
    return caught.value.code


@pytest.mark.parametrize("role", KEY_ROLES)
def test_key_of_every_role_opens_with_its_passphrase(role: str) -> None:
    private, public = create_key(role, "ada", WORDS, hardness=EASY)
    key = open_key(private, WORDS)
    assert (key.public, key.role, key.name) == (public, role, "ada")


def test_opened_key_signs_for_its_public_key() -> None:
    key = open_key(PRIVATE, WORDS).ed25519()
    assert key.public.raw.hex() == PUBLIC.key
    assert key.public.verifies(key.sign(b"text"), b"text")


def test_tuf_signer_has_the_same_key() -> None:
    signer = open_key(PRIVATE, WORDS).signer()
    assert signer.public_key.keyval["public"] == PUBLIC.key


def test_boinc_key_signs_no_metadata_and_others_no_boinc_files() -> None:
    private, _ = create_key("boinc", "ada", WORDS, hardness=EASY)
    with pytest.raises(TrustError, match="STO-K070"):
        open_key(private, WORDS).ed25519()
    with pytest.raises(TrustError, match="STO-K070"):
        open_key(PRIVATE, WORDS).boinc()


def test_private_file_holds_neither_key_nor_passphrase() -> None:
    secret = open_key(PRIVATE, WORDS).ed25519().key.private_bytes_raw()
    assert secret.hex().encode() not in PRIVATE
    assert WORDS.encode() not in PRIVATE


def test_wrong_passphrase_has_its_own_code() -> None:
    assert refusal(PRIVATE, WORDS + ".") == "STO-K071"


def test_composed_and_decomposed_letters_are_one_passphrase() -> None:
    private, _ = create_key("root", "ada", "schöne Wörter genug", hardness=EASY)
    assert open_key(private, "scho\u0308ne Wo\u0308rter genug").name == "ada"


def test_short_passphrase_is_refused() -> None:
    with pytest.raises(UsageError, match="STO-U003"):
        create_key("root", "ada", "tea", hardness=EASY)


@pytest.mark.parametrize("name", ["", "../ada", "a b", "a" * 65, "ä"])
def test_bad_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="STO-U003"):
        create_key("root", name, WORDS, hardness=EASY)


def test_unknown_role_is_refused() -> None:
    with pytest.raises(UsageError, match="STO-U003"):
        create_key("king", "ada", WORDS, hardness=EASY)


@pytest.mark.parametrize(
    "change",
    [{"role": "targets"}, {"name": "eve"}, {"public": "ab" * 32}, {"passes": 2}],
)
def test_changed_field_does_not_open(change: dict[str, object]) -> None:
    assert refusal(edited(**change)) == "STO-K071"


@pytest.mark.parametrize(
    "change",
    [
        {"memory_kib": 2**21},
        {"memory_kib": 8, "lanes": 8},
        {"passes": 17},
        {"passes": 0},
        {"lanes": 9},
        {"salt": "00"},
        {"nonce": "00" * 32},
        {"format": "stoilo-private-key/2"},
        {"more": 1},
    ],
)
def test_file_that_asks_too_much_is_refused_unopened(change: dict[str, object]) -> None:
    assert refusal(edited(**change)) == "STO-K070"


def test_real_keys_cost_much_to_guess() -> None:
    assert (HARD.memory_kib, HARD.passes) >= (64 * 1024, 3)


@given(st.integers(0, len(PRIVATE) - 1), st.integers(1, 255))
@settings(max_examples=60)
def test_changed_file_opens_as_the_same_key_or_not_at_all(at: int, flip: int) -> None:
    data = PRIVATE[:at] + bytes([PRIVATE[at] ^ flip]) + PRIVATE[at + 1 :]
    try:
        key = open_key(data, WORDS)
    except StoiloError:
        return
    assert key.public == PUBLIC  # a space of the text, for example


@given(st.binary(max_size=300))
def test_any_bytes_are_no_key(data: bytes) -> None:
    for parse in (lambda: open_key(data, WORDS), lambda: parse_public_file(data)):
        with pytest.raises(TrustError):
            parse()


def test_public_file_survives_the_way() -> None:
    assert parse_public_file(render_public_file(PUBLIC)) == PUBLIC


def test_fingerprint_is_the_digest_of_the_key_in_groups() -> None:
    digest = content_digest(bytes.fromhex(PUBLIC.key))
    assert "".join(fingerprint(PUBLIC).split()) == digest
    assert len(fingerprint(PUBLIC).split()) == 16
    assert PUBLIC.short == digest[:8]


def test_public_file_with_another_fingerprint_is_refused() -> None:
    _, other = create_key("root", "eve", WORDS, hardness=EASY)
    swapped = msgspec.structs.replace(PUBLIC, key=other.key)
    with pytest.raises(TrustError, match="STO-K070"):
        parse_public_file(render_public_file(swapped))


def test_groups_to_type_back_are_two_different_ones() -> None:
    seeded = random.Random(1)
    drawn = {choose_groups(seeded.randrange) for _ in range(2000)}
    assert len(drawn) == 16 * 15 // 2
    assert all(1 <= low < high <= 16 for low, high in drawn)


def test_typed_groups_may_be_upper_case_and_spaced() -> None:
    groups = PUBLIC.fingerprint.split()
    check_typed_back(PUBLIC.fingerprint, {3: f" {groups[2].upper()} ", 16: groups[15]})


def test_wrong_group_is_refused() -> None:
    groups = PUBLIC.fingerprint.split()
    wrong = "0000" if groups[4] != "0000" else "1111"
    with pytest.raises(TrustError, match="STO-K069"):
        check_typed_back(PUBLIC.fingerprint, {1: groups[0], 5: wrong})
