import pytest

from stoilo.core.errors import StoiloError
from stoilo.signer.ceremony.status import read_state
from tests.support.ceremony import DAY_S, NOW, CeremonyBench


@pytest.mark.parametrize(
    ("days", "state"), [(0, "ok"), (4, "soon"), (6.5, "urgent"), (7, "expired")]
)
def test_worst_role_decides(bench: CeremonyBench, days: float, state: str) -> None:
    assert read_state(bench.directory, NOW + int(days * DAY_S)).state == state


def test_who_must_do_what_is_said(bench: CeremonyBench) -> None:
    warnings = read_state(bench.directory, NOW + 130 * DAY_S).warnings
    assert any("targets is soon; its people sign it" in line for line in warnings)
    assert any("timestamp is expired; start the server" in line for line in warnings)
    assert any("online-keys" in line for line in warnings)


def test_last_epoch_decides_how_long_work_is_admitted(bench: CeremonyBench) -> None:
    assert read_state(bench.directory, NOW).epochs_until == NOW + 41 * DAY_S


def test_holders_are_named_beside_their_roles(bench: CeremonyBench) -> None:
    roles = {one.role: one for one in read_state(bench.directory, NOW).roles}
    assert [one.name for one in roles["gate"].keys] == ["ada"]
    assert roles["root"].threshold == 2


def test_place_without_a_release_is_refused(fresh: CeremonyBench) -> None:
    with pytest.raises(StoiloError, match="STO-K052"):
        read_state(fresh.directory.parent, NOW)
