import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.levels import level_files
from stoilo.executor.verifier.targets import (
    ArchiveFile,
    EpochFile,
    PartFile,
    ProjectFile,
    RevocationFile,
)
from stoilo.signer.ceremony.change_words import describe_target, render_time

A, B = "a" * 64, "b" * 64


def words(name: str, old: object, new: object) -> tuple[str, ...]:
    return describe_target(
        name,
        None if old is None else msgspec.json.encode(old),
        None if new is None else msgspec.json.encode(new),
    )


def test_levels_that_come_and_go_are_named() -> None:
    old, new = (
        ProjectFile("o", {"pure": (A,)}, (A,)),
        ProjectFile("o", {"pure": (B,)}, (A,)),
    )
    assert words("project.json", old, new) == (
        f"- level pure {A}",
        f"+ level pure {B}",
    )


def test_epoch_is_told_with_its_window() -> None:
    epoch = EpochFile(3, (A,), 1, 1_800_000_000, 1_800_086_400, 60)
    line, key = words("gate/3.json", None, epoch)
    assert key == f"+ key {A}"
    assert line.startswith(
        "+ gate epoch 3: 2027-01-15 08:00 UTC to 2027-01-16 08:00 UTC"
    )


def test_withdrawals_are_listed() -> None:
    lines = words(
        "revocation/denied.json", RevocationFile((A,)), RevocationFile((B,), (2,))
    )
    assert lines == (
        f"- withdrawn digest {A}",
        f"+ withdrawn digest {B}",
        "+ withdrawn gate epoch 2",
    )


def test_part_tells_version_and_serial() -> None:
    part = PartFile(
        "stoilo-part/1", "pure", "x86_64-linux", "1.1", 4, ArchiveFile("a.tar.xz", 9, A)
    )
    before = msgspec.structs.replace(part, version="1.0", serial=3)
    assert words("flavor/pure/x86_64-linux.json", before, part) == (
        "- pure for x86_64-linux: 1.0, serial 3, 9 bytes",
        "+ pure for x86_64-linux: 1.1, serial 4, 9 bytes",
    )


def test_level_file_is_compared_with_this_installation() -> None:
    own = level_files()["pure"]
    assert "the very file" in describe_target("levels/pure.toml", None, own)[0]
    assert "NOT the file" in describe_target("levels/pure.toml", None, own + b"\n")[0]


def test_text_is_shown_line_by_line() -> None:
    lines = describe_target(
        "log/policy.txt", b"log a\nquorum none\n", b"log b\nquorum none\n"
    )
    assert lines == ("- log a", "+ log b")
    assert describe_target("log/policy.txt", b"-- a\n", b"++ b\n") == (
        "- -- a",
        "+ ++ b",
    )


def test_archive_needs_no_words() -> None:
    assert describe_target("verifier/x86_64-linux.tar", b"a", b"b") == ()


@pytest.mark.parametrize("seconds", [-1, 2**40, 0, 253_402_300_799])
def test_absurd_times_are_said_to_be_so(seconds: int) -> None:
    assert render_time(seconds)


@given(
    name=st.sampled_from(
        [
            *("project.json", "gate/epochs.json", "gate/1.json", "log/policy.txt"),
            *("verifier/x86_64-linux.json", "levels/pure.toml", "builders/keys.json"),
        ]
    ),
    data=st.binary(max_size=300),
)
def test_any_bytes_give_bounded_plain_lines(name: str, data: bytes) -> None:
    lines = describe_target(name, None, data)
    assert len(lines) <= 64
    assert all("\x1b" not in line for line in lines)
