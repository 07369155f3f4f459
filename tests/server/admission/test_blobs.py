from __future__ import annotations

import asyncio
import resource
from contextlib import ExitStack

import pytest

from stoilo.core.codec.nodes import Ndarray
from stoilo.core.codec.skeleton import encode
from stoilo.core.digests import content_digest
from stoilo.core.errors import (
    DeniedError,
    InternalError,
    PolicyRefusal,
    TrustError,
    UsageError,
)
from stoilo.policies.policy import Quota
from stoilo.server.admission import tokens
from stoilo.server.admission.blobs import BlobStore
from stoilo.server.admission.quotas import BlobRoom
from tests.support.serverbench import Bench

DATA = encode(b"weights" * 1000)
NAME = content_digest(DATA)


def account(bench: Bench, name: str) -> int:
    with bench.store.write() as connection:
        token = tokens.issue_token(
            connection, name, tokens.Role.RESEARCHER, bench.clock()
        )
        return tokens.find_owner(connection, token, bench.clock()).account_id


def upload(bench: Bench, owner: int, data: bytes = DATA, name: str = NAME) -> None:
    with bench.server.blobs.begin(owner, name, len(DATA)) as incoming:
        for start in range(0, len(data), 1000):
            incoming.feed(data[start : start + 1000])
        incoming.finish()


def test_uploaded_blob_reads_back(bench: Bench) -> None:
    owner = account(bench, "a")
    upload(bench, owner)
    with bench.server.blobs.open_granted(owner, NAME) as file:
        assert file.read() == DATA


def test_blob_of_another_owner_does_not_exist(bench: Bench) -> None:
    upload(bench, account(bench, "a"))
    stranger = account(bench, "b")
    with pytest.raises(DeniedError, match="STO-R003"):
        bench.server.blobs.open_granted(stranger, NAME)


def test_upload_of_known_bytes_needs_all_the_bytes(bench: Bench) -> None:
    upload(bench, account(bench, "a"))
    with pytest.raises(UsageError, match="STO-R010"):
        upload(bench, account(bench, "b"), DATA[:-1])


def test_full_disk_has_a_code_and_leaves_nothing(bench: Bench) -> None:
    owner = account(bench, "a")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(InternalError, match="STO-R030"):
            upload(bench, owner)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not bench.server.blobs.path(NAME).exists()
    upload(bench, owner)


@pytest.mark.parametrize(
    ("data", "code"),
    [(DATA + b"x", "STO-R010"), (DATA[:-1], "STO-R010"), (DATA[::-1], "STO-R010")],
)
def test_wrong_bytes_leave_nothing(bench: Bench, data: bytes, code: str) -> None:
    owner = account(bench, "a")
    with pytest.raises((UsageError, TrustError), match=code):
        upload(bench, owner, data)
    assert not bench.server.blobs.path(NAME).exists()
    assert not list((bench.directory / "blobs" / "incoming").iterdir())


def test_blob_that_is_no_encoded_value_is_refused(bench: Bench) -> None:
    data = b"\x80\x04K\x01." + b"x" * (len(DATA) - 5)
    with pytest.raises(TrustError, match="STO-D002"):
        upload(bench, account(bench, "a"), data, content_digest(data))
    assert not bench.server.blobs.path(content_digest(data)).exists()


def test_types_in_a_blob_reach_the_gate(bench: Bench) -> None:
    node = Ndarray("float64", (2,), bytes(16))
    value = encode([node, {"deep": node}])
    with bench.store.read() as connection:
        owner = tokens.find_owner(connection, bench.token, bench.clock()).account_id
    name = bench.server.blobs.put(owner, value)
    asyncio.run(bench.submit(blobs=[name]))
    assert bench.judge.last is not None
    assert bench.judge.last.argument_types == ("numpy.ndarray",)


@pytest.mark.parametrize("name", ["../../etc/passwd", "A" * 64, "0" * 63, ""])
def test_name_that_is_no_digest_is_refused(bench: Bench, name: str) -> None:
    with pytest.raises(TrustError, match="STO-D002"):
        bench.server.blobs.begin(account(bench, "a"), name, 1)


def test_quota_counts_every_granted_byte(bench: Bench) -> None:
    owner, quota = account(bench, "a"), Quota(blob_bytes=len(DATA) + 1)
    upload(bench, owner)
    with pytest.raises(PolicyRefusal, match="STO-R006"):
        bench.server.blobs.begin(owner, "0" * 64, 2, quota)


class Forgetful(BlobRoom):
    """Looks at what is stored and sets nothing aside: what the protection replaced."""

    def release(self, account_id: int, size: int) -> None:
        """Nothing was kept."""

    def reserve(self, *given: object) -> None:
        """Check, then forget."""
        super().reserve(*given)  # type: ignore[arg-type]  # passed on
        self._coming.clear()


def store_of(bench: Bench, room: BlobRoom) -> BlobStore:
    return BlobStore(bench.directory / "more", bench.store, bench.clock(), room)


def begin_many(bench: Bench, blobs: BlobStore, size: int, most: int) -> int:
    """Begin 20 uploads side by side; returns how many were let in."""
    owner, begun = account(bench, "a"), 0
    with ExitStack() as stack:
        for number in range(20):
            try:
                upload = blobs.begin(
                    owner, f"{number:064}", size, Quota(blob_bytes=most)
                )
            except PolicyRefusal:
                continue
            stack.enter_context(upload)
            begun += 1
    return begun


@pytest.mark.parametrize(("room", "begun"), [(BlobRoom(), 2), (Forgetful(), 20)])
def test_uploads_side_by_side_share_the_quota(
    bench: Bench, room: BlobRoom, begun: int
) -> None:
    assert begin_many(bench, store_of(bench, room), 20, 47) == begun


@pytest.mark.parametrize("data", [DATA, DATA[:-1], DATA + b"x", b""])
def test_ended_upload_gives_its_room_back(bench: Bench, data: bytes) -> None:
    room, owner = BlobRoom(), account(bench, "a")
    blobs, quota = store_of(bench, room), Quota(blob_bytes=2 * len(DATA))
    upload = blobs.begin(owner, NAME, len(DATA), quota)
    assert room.coming(owner) == len(DATA)
    try:
        with upload:
            upload.feed(data)
            upload.finish()
    except UsageError:
        pass
    assert room.coming(owner) == 0


def test_refused_name_and_full_disk_set_nothing_aside(bench: Bench) -> None:
    room, owner = BlobRoom(), account(bench, "a")
    blobs = store_of(bench, room)
    with pytest.raises(TrustError):
        blobs.begin(owner, "no digest", 5, Quota())
    (bench.directory / "more" / "incoming").rmdir()
    with pytest.raises(InternalError, match="STO-R030"):
        blobs.begin(owner, NAME, 5, Quota())
    assert room.coming(owner) == 0


def test_server_that_was_killed_begins_without_halves_and_with_all_its_room(
    bench: Bench,
) -> None:
    owner, quota = account(bench, "a"), Quota(blob_bytes=len(DATA))
    killed = store_of(bench, BlobRoom())
    half = killed.begin(owner, NAME, len(DATA), quota)
    half.feed(DATA[:100])
    with pytest.raises(PolicyRefusal, match="STO-R006"):
        killed.begin(owner, "0" * 64, 1, quota)
    again = store_of(bench, BlobRoom())
    assert not list((bench.directory / "more" / "incoming").iterdir())
    half.file.close()  # as the kernel did
    with again.begin(owner, NAME, len(DATA), quota) as upload:
        upload.feed(DATA)
        upload.finish()
