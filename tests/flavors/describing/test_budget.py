"""A check with a budget ends in time, and says what it left out."""

import pytest

from stoilo.core.libraries import parse_library
from stoilo.flavors.describing import check
from stoilo.flavors.describing.check import check_library
from tests.support.libraries import FAKE_LIBRARY, install_fake

HEAD = FAKE_LIBRARY.replace('["work"]', '["other", "work"]')
ENDLESS = "sum(itertools.repeat(0))"  # in C: no signal stops it
CRASH = "ctypes.string_at(0)"


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Install a package with `work`, and `other` before it, and check it."""
    monkeypatch.setattr(check, "_STUCK_S", 1.0)

    def ask(work, other="return 1", budget_s=30):
        source = f"import ctypes, itertools, time\ndef work(*values):\n    {work}\n"
        install_fake(tmp_path, source + f"def other():\n    {other}\n")
        library, paths = parse_library(HEAD.encode()), [tmp_path]
        return check_library(library, None, paths=paths, deep=1, budget_s=budget_s)

    return ask


def test_all_is_called_within_the_budget(ask):
    report = ask("return 1")
    assert (report.faults, report.notes, report.complete) == ((), (), True)
    assert report.calls > 0


def test_call_that_never_ends_is_noted_and_the_rest_is_called(ask):
    report = ask("return 1", other=ENDLESS)
    assert report.notes == ("fake.other() did not come back in 1 s",)
    assert (report.faults, report.complete, report.version) == ((), True, "1.4.2")


def test_crash_without_arguments_is_a_fault(ask):
    (fault,) = ask(CRASH).faults
    assert (fault.code, "SIGSEGV" in fault.message) == ("STO-S020", True)


def test_crash_with_arguments_of_another_kind_is_noted(ask):
    report = ask(f"values and {CRASH}")
    assert report.notes == ("fake.work(…) ended the process (SIGSEGV)",)
    assert report.faults == ()


def test_what_was_found_before_a_crash_is_kept(ask):
    report = ask(f"values and {CRASH}", other="open('/etc/hosts')")
    (fault,) = report.faults
    assert "fake.other() opens /etc/hosts" in fault.message


def test_slow_library_is_left_when_the_budget_is_spent(ask):
    report = ask("return 1", other="time.sleep(0.6)", budget_s=0.5)
    assert (report.faults, report.complete) == ((), False)
