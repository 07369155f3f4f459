"""Which clock judges what: metadata the day of the admission, its end and its epoch today."""

from pathlib import Path

import pytest

from stoilo.core.errors import TrustError
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.executor.verifier.trust import load_trust
from stoilo.signer.release_directory import read_release
from tests.support.gate import (
    DAY_S,
    NOW,
    GateBench,
    TaskBundle,
    epoch_at,
    host_state,
    verify_bundle,
)
from tests.support.metadata import ORIGIN, MetadataBench

LATE = 10 * DAY_S
"""Beyond the timestamp's life, within an admission's."""


def test_release_of_the_admissions_day_serves_until_the_admission_ends() -> None:
    bench = MetadataBench(NOW)
    assert bench.load(late_s=LATE, reference=NOW) == ORIGIN


def test_the_same_release_has_ended_for_work_admitted_today() -> None:
    bench = MetadataBench(NOW)
    assert bench.load(late_s=LATE, reference=NOW + LATE) == "STO-K011"
    assert bench.load(late_s=LATE) == "STO-K011"


def test_release_that_had_ended_before_the_admission_is_refused() -> None:
    bench = MetadataBench(NOW)
    assert bench.load(late_s=LATE, reference=NOW + 8 * DAY_S) == "STO-K011"


def test_admission_from_the_future_does_not_lengthen_anything() -> None:
    """A reference later than the best time counts as the best time."""
    bench = MetadataBench(NOW)
    assert bench.load(late_s=0, reference=NOW + LATE) == ORIGIN
    assert bench.load(late_s=LATE, reference=NOW + 2 * LATE) == "STO-K011"


@pytest.mark.parametrize("reference", [-(2**62), -1, 0, 1, 2**62])
def test_any_reference_ends_in_a_value_or_our_error(reference: int) -> None:
    bench = MetadataBench(NOW)
    assert bench.load(reference=reference) in {ORIGIN, "STO-K011"}


def test_memory_of_a_newer_release_is_not_undone_by_an_older_reference(
    tmp_path: Path,
) -> None:
    bench, cache = MetadataBench(NOW), tmp_path / "cache"
    first = dict(bench.files)
    bench.now += LATE
    bench.publish_targets("revocation")
    bench.publish()
    assert bench.load(cache) == ORIGIN
    bench.files = first
    assert bench.load(cache, reference=NOW) == "STO-K010"


def test_end_of_the_admission_is_judged_by_the_best_time(tmp_path: Path) -> None:
    """The release is fine for its day; the admission is over all the same."""
    gate = GateBench(tmp_path / "keys")
    bundle = gate.bundle(gate.admit(gate.statement(not_after=NOW + 14 * DAY_S)))
    root = gate.root.root_file.read_bytes()
    for late, code in ((LATE, ""), (15 * DAY_S, "STO-A040")):
        trust = load_trust(
            read_release(gate.root.directory),
            root,
            NOW + late,
            installed=gate.installed,
            reference=NOW,
        )
        assert verdict(bundle, trust, NOW + late) == code


def verdict(bundle: TaskBundle, trust: TrustedRelease, now: int) -> str:
    """Return the code of the refusal, empty for work that may run."""
    try:
        verify_bundle(bundle, trust, host_state(), now)
    except TrustError as error:
        return error.code
    return ""


def test_epoch_is_judged_by_the_best_time_too(tmp_path: Path) -> None:
    gate = GateBench(tmp_path / "keys")
    root = gate.root.root_file.read_bytes()
    trust = load_trust(
        read_release(gate.root.directory),
        root,
        NOW + 60 * DAY_S,
        installed=gate.installed,
        reference=NOW,
    )
    assert epoch_at(trust, NOW, DAY_S) is not None
    assert epoch_at(trust, NOW + 60 * DAY_S, DAY_S) is None
