"""What an operator reads: figures of the watch, settings, accounts, hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from stoilo.core.types import TaskState
from stoilo.server.admission.gatekeeper import GateRefusal
from stoilo.server.engines.embedded.accounts.roster import KnownHost, SpotCheck
from stoilo.server.engines.embedded.db.records import CheckVerdict
from stoilo.server.operations import accounts
from stoilo.server.watching.metrics import METRICS, Kind
from stoilo.web.console.wording import SECTIONS, STATES, render_figure, render_figures
from tests.support.console import run
from tests.support.serverbench import make_bench

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.console import ConsoleBench, Door


def read(served: ConsoleBench, page: str) -> str:
    return served.visitor("olga", "operator").ask(f"/console/{page}").words


def test_project_says_what_is_not_well_and_what_ends(served: ConsoleBench) -> None:
    words = read(served, "project")
    assert "Not ready. disk: full" in words
    assert "database: " not in words  # that one is well
    assert "root urgent" in words


def test_project_shows_the_watch_s_own_figures(served: ConsoleBench) -> None:
    run(served.bench.issued("k1"))
    words = read(served, "project")
    for text in (
        "Tasks that are stored, by state with volunteers 1",
        "Leaves that no checkpoint covers yet 2",
        "Hosts that called lately 1d 4",
        "Room on the disk of a place data",
        "Admissions signed since the start 1",
    ):
        assert text in words, text


def test_every_gauge_of_the_catalogue_has_its_section_or_is_left_out_on_purpose() -> (
    None
):
    starts = tuple(start for _, names in SECTIONS for start in names)
    left = {
        one.name
        for one in METRICS
        if one.kind is not Kind.HISTOGRAM and not one.name.startswith(starts)
    }
    assert left == {
        "stoilo_build_info",
        "stoilo_start_time_seconds",
        "stoilo_ready",  # said in words above the figures
        "stoilo_ready_check",
        "stoilo_epoch_remaining_seconds",  # as dates, in the table of keys
        "stoilo_release_remaining_seconds",
    }


def test_project_counts_refusals_by_code(served: ConsoleBench) -> None:
    for n in range(2):
        with pytest.raises(GateRefusal):
            run(served.bench.submit(f"k{n}", task_module=b"import os\n# %d" % n))
    assert "STO-P040 2: " in read(served, "project")
    served.bench.clock.now += 86_401
    assert "STO-P040" not in read(served, "project")


def test_settings_are_shown_without_passwords(served: ConsoleBench) -> None:
    words = read(served, "settings")
    assert "database mysql://stoilo:***@db/x chosen" in words
    assert "secret" not in words.replace("oidc_secret_file", "")
    assert "keep_workunits_days 30 as shipped" in words


def test_accounts_are_listed_with_their_standing(served: ConsoleBench) -> None:
    accounts.suspend(served.bench.store, "ada", "mines <b>", served.bench.clock())
    words = read(served, "accounts")
    assert "ada researcher 1 0" in words
    assert "mines <b>" in words
    assert "olga operator" in words


def test_accounts_are_read_only(served: ConsoleBench) -> None:
    visitor = served.visitor("olga", "operator")
    for page in ("project", "hosts", "traffic", "accounts", "settings"):
        forms = visitor.ask(f"/console/{page}").forms()
        assert set(forms) == {"/console/sign-out"}


def test_hosts_of_a_stock_project_are_boinc_s(served: ConsoleBench) -> None:
    assert "BOINC's own pages" in read(served, "hosts")


class RosterOfOne:
    """Knows one computer, which was found wrong once."""

    def list_hosts(self) -> tuple[KnownHost, ...]:
        said = ("a@b.example", "anna-pc", "linux", "7.20.5", "GNU/Linux", "i7")
        return (KnownHost(7, *said, 4, 8e9, *(True, 1, 2, 1234.5)),)

    def spot_checks(self, since: int) -> tuple[SpotCheck, ...]:
        assert since > 0
        return (SpotCheck(1, "w", CheckVerdict.DIFFERENT, 9, banned=(7,)),)


def test_hosts_are_shown_by_number_and_not_by_name(door: Door, tmp_path: Path) -> None:
    roster = cast("Any", RosterOfOne())
    words = read(door.show(make_bench(tmp_path), roster), "hosts")
    assert "1 computer" in words
    assert "7 GNU/Linux 4 7.451 GiB 1234.50 banned" in words
    assert "banned for it: 7" in words
    assert ("anna" in words, "a@b" in words) == (False, False)


def test_every_state_has_its_words() -> None:
    assert set(STATES) == {one.value for one in TaskState}


def test_of_many_figures_those_are_shown_that_are_not_zero() -> None:
    values = [("running", 2.0), ("expired", 0.0), ("other_one", 1.0)]
    assert render_figures("x", values) == "with volunteers 2, other one 1"
    assert render_figures("x", values[1:2]) == "expired 0"
    assert render_figures("x", values[1:2] * 2) == "none"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("x_bytes", 2048, "2 KiB"),
        ("x_seconds", 7200, "2 hours"),
        ("x_total", 1234567, "1,234,567"),
        ("x", 0.25, "0.25"),
    ],
)
def test_figure_is_told_in_its_unit(name: str, value: float, text: str) -> None:
    assert render_figure(name, value) == text
