"""The issuer against a real signer and a real tree; only durability is left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from stoilo.audit.format.proof import LeafKind, parse_leaf
from stoilo.audit.format.records import parse_record
from stoilo.core.errors import (
    InternalError,
    StoiloError,
    TrustError,
    UsageError,
    WaitError,
)
from stoilo.core.statement import FRESH_S, MAX_DIGESTS, RevocationStatement
from stoilo.executor.verifier.statements import open_revocations
from stoilo.executor.verifier.targets import RevocationFile
from stoilo.server.revocation.issuer import (
    REISSUE_S,
    RevocationIssuer,
    next_statement,
    offline_records,
)
from stoilo.server.revocation.wishes import Withdrawals, wish
from stoilo.signer.development.changes import (
    replace_online_key,
    revoke,
    settle_revocations,
)
from stoilo.signer.process.protocol import (
    LastRevocation,
    Refused,
    Request,
    SignRevocation,
)
from stoilo.signer.process.service import SignerService
from tests.support.gate import NOW, GateBench, epoch_at

OLD = "a" * 64


class TreeLog:
    """The gate's tree as the server's log."""

    def __init__(self, gate: GateBench) -> None:
        self.gate = gate
        self.leaves: list[bytes] = []
        self.labels: list[str | None] = []
        self.made: list[bytes] = []
        self.fail: StoiloError | None = None
        self.silent = False

    def append_many(
        self, leaves: Sequence[bytes], labels: Sequence[str | None] | None = None
    ) -> list[int]:
        if self.fail is not None:
            raise self.fail
        for leaf, label in zip(leaves, labels or [None] * len(leaves), strict=True):
            if leaf not in self.leaves:
                self.leaves.append(leaf)
                self.labels.append(label)
                self.made.append(self.gate.log(leaf))
        return [self.leaves.index(leaf) for leaf in leaves]

    def wait_published(self, index: int, timeout: float | None = None) -> None:
        del timeout
        if self.silent:
            raise WaitError("STO-L056", f"leaf {index} was not published")

    def proof(self, index: int) -> bytes:
        return self.made[index]

    def proofs(self, indices: Sequence[int]) -> list[bytes]:
        return [self.proof(index) for index in indices]

    def find_label(self, label: str) -> list[int]:
        return [at for at, one in enumerate(self.labels) if one == label]


class Bench:
    """An issuer that a test can kill and start again."""

    def __init__(self, directory: Path, gate: GateBench) -> None:
        self.directory = directory
        self.gate = gate
        self.now = NOW
        self.log = TreeLog(gate)
        self.signer = SignerService(gate.root.directory, clock=lambda: self.now)
        self.fail: TrustError | None = None
        self.records: list[bytes] = []
        self.start()

    def start(self) -> RevocationIssuer:
        self.issuer = RevocationIssuer(
            self.directory,
            self.log,
            self,
            lambda: self.gate.root.trust,
            lambda: self.now,
            self.records.append,
        )
        return self.issuer

    def reload(self) -> None:
        self.gate.root = self.gate._make_root(
            self.gate.root.directory, self.gate.root.origin
        )

    def ask(self, request: Request) -> tuple[bytes, bytes]:
        answer = self.signer.answer(request)
        if isinstance(answer, Refused):
            raise TrustError(answer.code, answer.message)
        return answer.statement, answer.envelope  # type: ignore[union-attr]  # of a revocation

    def sign_revocation(self, statement: bytes, proof: bytes) -> bytes:
        if self.fail is not None:
            raise self.fail
        return self.ask(SignRevocation(statement, proof))[1]

    def last_revocation(self) -> tuple[bytes, bytes]:
        return self.ask(LastRevocation())

    @property
    def newest(self) -> RevocationStatement:
        file = self.issuer.current(self.now)
        return open_revocations(file, self.gate.root.trust).statement

    def want(self, **fields: object) -> Path:
        return Withdrawals(self.directory).add(wish(**fields))  # type: ignore[arg-type]  # named by tests


@pytest.fixture
def bench(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    gate = GateBench(tmp_path_factory.mktemp("gate") / "root")
    return Bench(tmp_path / "revocations", gate)


def test_first_statement_is_issued_at_the_start(bench: Bench) -> None:
    with pytest.raises(InternalError, match="STO-L160"):
        bench.issuer.current(NOW)
    assert bench.issuer.upkeep()
    assert bench.newest.sequence == 1
    assert not bench.issuer.upkeep()


def test_statement_and_offline_list_are_leaves_with_records(bench: Bench) -> None:
    bench.issuer.upkeep()
    kinds = [parse_leaf(leaf).kind for leaf in bench.log.leaves]
    assert kinds == [LeafKind.REVOCATION, LeafKind.REVOCATION]
    records = [parse_record(data) for data in bench.records]
    assert [record.issuer for record in records] == ["offline", "online"]  # type: ignore[union-attr]


def test_statement_is_renewed_after_twelve_hours(bench: Bench) -> None:
    bench.issuer.upkeep()
    bench.now += REISSUE_S - 1
    assert not bench.issuer.upkeep()
    bench.now += 1
    assert bench.issuer.upkeep()
    assert (bench.newest.sequence, bench.newest.time) == (2, bench.now)


def test_wish_is_in_force_at_once_and_for_good(bench: Bench) -> None:
    bench.issuer.upkeep()
    wanted = bench.want(epochs=(1,), digests=(OLD,))
    with pytest.raises(InternalError, match="on its way"):
        bench.issuer.current(NOW)
    assert bench.issuer.upkeep()
    assert not wanted.exists()
    assert (bench.newest.epochs, bench.newest.digests) == ((1,), (OLD,))
    assert epoch_at(bench.issuer.in_force(), NOW, 60) is None
    bench.want(epochs=(9,))
    bench.issuer.upkeep()
    assert bench.newest.epochs == (1, 9)


def test_wish_that_is_in_force_already_issues_nothing(bench: Bench) -> None:
    bench.want(epochs=(9,))
    bench.issuer.upkeep()
    wanted = bench.want(epochs=(9,))
    assert not bench.issuer.upkeep()
    assert not wanted.exists()


def test_restarted_server_goes_on_with_its_statement(bench: Bench) -> None:
    bench.want(epochs=(9,))
    bench.issuer.upkeep()
    bench.start()
    assert not bench.issuer.upkeep()
    assert bench.newest.sequence == 1


def test_lost_file_is_replaced_by_a_newer_statement(bench: Bench) -> None:
    bench.want(epochs=(9,))
    bench.issuer.upkeep()
    (bench.directory / "current").unlink()
    bench.start()
    assert bench.issuer.upkeep()
    assert (bench.newest.sequence, bench.newest.epochs) == (2, (9,))


def test_restored_file_of_an_older_statement_is_not_used(bench: Bench) -> None:
    bench.issuer.upkeep()
    old = (bench.directory / "current").read_bytes()
    bench.want(epochs=(9,))
    bench.issuer.upkeep()
    (bench.directory / "current").write_bytes(old)
    bench.start()
    assert bench.issuer.upkeep()
    assert (bench.newest.sequence, bench.newest.epochs) == (3, (9,))


def test_work_waits_while_the_log_does_not_take_the_statement(bench: Bench) -> None:
    bench.issuer.upkeep()
    wanted = bench.want(epochs=(9,))
    bench.log.fail = InternalError("STO-R030", "the disk is full")
    assert not bench.issuer.upkeep()
    with pytest.raises(InternalError, match="STO-L160"):
        bench.issuer.current(NOW)
    assert wanted.exists()
    bench.log.fail, bench.now = None, NOW + 5
    assert bench.issuer.upkeep()
    assert bench.newest.epochs == (9,)


def test_statement_that_was_logged_but_not_signed_is_tried_again(bench: Bench) -> None:
    bench.fail = TrustError("STO-K020", "the signer does not answer")
    bench.issuer.upkeep()
    bench.fail, bench.now = None, NOW + 5
    assert bench.issuer.upkeep()
    assert len(bench.log.find_label("revocation:1")) == 1


def test_log_without_its_witnesses_gets_one_leaf_however_long(bench: Bench) -> None:
    bench.log.silent = True
    for _ in range(5):
        bench.issuer.upkeep()
        bench.now += 600
    assert len(bench.log.find_label("revocation:1")) == 1
    bench.log.silent = False
    assert bench.issuer.upkeep()
    assert bench.newest.time == bench.now


@pytest.mark.parametrize("moment", ["logged", "signed"])
def test_server_killed_between_two_steps_issues_what_was_wished(
    bench: Bench, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.want(epochs=(9,))
    bench.fail = TrustError("STO-K020", "killed")
    if moment == "signed":
        bench.fail = None
        monkeypatch.setattr(Withdrawals, "write_file", _fall_over)
    bench.issuer.upkeep()
    monkeypatch.undo()
    bench.fail = None
    bench.start()
    assert bench.issuer.upkeep()
    assert bench.newest.epochs == (9,)
    assert not Withdrawals(bench.directory).waiting()


def _fall_over(*_: object) -> None:
    raise TrustError("STO-K020", "killed")


def test_statement_that_grew_old_is_given_to_nobody(bench: Bench) -> None:
    bench.issuer.upkeep()
    bench.now += FRESH_S + 1
    with pytest.raises(InternalError, match="24 hours"):
        bench.issuer.current(NOW)


def test_offline_list_settles_and_the_next_statement_stands_on_it(bench: Bench) -> None:
    bench.want(epochs=(9,), digests=(OLD,))
    bench.issuer.upkeep()
    gone = wish(digests=(OLD,))
    settle_revocations(bench.gate.root.directory, NOW, remove=gone)
    bench.reload()
    assert bench.issuer.upkeep()
    assert (bench.newest.epochs, bench.newest.digests) == ((), ())
    assert bench.newest.base == bench.gate.root.trust.revocation_version
    assert bench.issuer.in_force().revoked_epochs == {9}
    assert bench.issuer.in_force().denied == frozenset()


def test_addition_during_a_ceremony_is_not_lost(bench: Bench) -> None:
    bench.want(epochs=(8,))
    bench.issuer.upkeep()
    bench.want(epochs=(9,))
    bench.issuer.upkeep()
    revoke(bench.gate.root.directory, RevocationFile(settled=1), NOW)
    bench.reload()
    bench.issuer.upkeep()
    assert bench.newest.epochs == (8, 9)


def test_new_online_key_begins_anew_and_nothing_is_lost(bench: Bench) -> None:
    bench.want(epochs=(9,))
    bench.issuer.upkeep()
    replace_online_key(bench.gate.root.directory, NOW)
    bench.reload()
    assert bench.issuer.upkeep()
    assert bench.newest.sequence == 1
    assert bench.issuer.in_force().revoked_epochs == {9}


def test_clock_that_went_back_gets_a_statement_of_its_own_time(bench: Bench) -> None:
    bench.issuer.upkeep()
    bench.now -= 3600
    assert bench.issuer.upkeep()
    assert (bench.newest.sequence, bench.newest.time) == (2, bench.now)


def test_more_wishes_than_a_statement_holds_are_refused() -> None:
    many = tuple(f"{number:064x}" for number in range(MAX_DIGESTS))
    last = wish(digests=many)
    with pytest.raises(UsageError, match="STO-L164"):
        next_statement(last, wish(digests=(OLD,)), _trust(), NOW)


def test_long_offline_list_takes_several_records() -> None:
    many = frozenset(f"{number:064x}" for number in range(2 * MAX_DIGESTS + 1))
    records = offline_records(_trust(denied=many), NOW)
    assert len(records) == 3
    assert {digest for one in records for digest in one.digests} == many


def _trust(**changes: object):  # type: ignore[no-untyped-def]  # a stand-in
    from types import SimpleNamespace  # noqa: PLC0415

    fields = {
        "origin": "project.example/log",
        "epochs": (),
        "denied": frozenset(),
        "revoked_epochs": frozenset(),
        "withdrawn_flavors": frozenset(),
        "min_epoch": 1,
        "revocation_version": 1,
        "revocation_digest": "0" * 64,
        "revocations_settled": 0,
    }
    return SimpleNamespace(**(fields | changes))


def test_wish_needs_something_in_the_right_form() -> None:
    for fields in ({}, {"digests": ("A" * 64,)}, {"epochs": (0,)}, {"flavors": ("",)}):
        with pytest.raises(UsageError, match="STO-U003"):
            wish(**fields)  # type: ignore[arg-type]  # wrong on purpose


def test_wishes_file_that_is_none_stops_the_issuer(bench: Bench) -> None:
    bench.issuer.upkeep()
    file = bench.want(epochs=(9,))
    file.write_bytes(msgspec.json.encode({"record": "revocation"}))
    assert not bench.issuer.upkeep()
    with pytest.raises(InternalError, match="STO-L160"):
        bench.issuer.current(NOW)


def test_signer_that_has_forgotten_a_statement_stops_admissions_and_says_so(
    bench: Bench,
) -> None:
    bench.want(digests=(OLD,))
    bench.issuer.upkeep()
    directory = bench.gate.root.directory
    (directory / "state" / "revocation.json").unlink()
    bench.signer = SignerService(directory, clock=lambda: bench.now)
    bench.start()
    assert not bench.issuer.upkeep()
    with pytest.raises(InternalError, match="has forgotten revocation statement 1"):
        bench.issuer.current(bench.now)
    replace_online_key(directory, NOW)
    bench.reload()
    bench.signer = SignerService(directory, clock=lambda: bench.now)
    bench.now += 10
    assert bench.issuer.upkeep()
