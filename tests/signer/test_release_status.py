import pytest

from stoilo.signer.ceremony.base_release import open_published
from stoilo.signer.release_status import (
    ReleaseStatus,
    read_status,
    role_holders,
    warnings_of,
)
from tests.support.ceremony import DAY_S, NOW, CeremonyBench


def read_state(bench: CeremonyBench, now: int) -> ReleaseStatus:
    return read_status(open_published(bench.directory), now)


@pytest.mark.parametrize(
    ("days", "state"), [(0, "ok"), (4, "soon"), (6.5, "urgent"), (7, "expired")]
)
def test_worst_role_decides(bench: CeremonyBench, days: float, state: str) -> None:
    assert read_state(bench, NOW + int(days * DAY_S)).state == state


def test_who_must_do_what_is_said(bench: CeremonyBench) -> None:
    warnings = warnings_of(read_state(bench, NOW + 130 * DAY_S))
    assert any(
        "targets expires" in line and "--renew targets" in line for line in warnings
    )
    assert any("timestamp expired" in line for line in warnings)
    assert any("online-keys" in line for line in warnings)


def test_last_epoch_decides_how_long_work_is_admitted(bench: CeremonyBench) -> None:
    assert read_state(bench, NOW).epochs_until == NOW + 41 * DAY_S


def test_holders_are_named_beside_their_roles(bench: CeremonyBench) -> None:
    roles = role_holders(open_published(bench.directory))
    assert [one.name for one in roles["gate"].keys] == ["ada"]
    assert roles["root"].threshold == 2
