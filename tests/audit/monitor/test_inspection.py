from collections.abc import Callable

import pytest

from stoilo.audit.format.facts import OperatorAct, OperatorRecord
from stoilo.audit.monitor.finding import Finding

from .conftest import Watcher

Fill = Callable[[int], Watcher]


def poll(watcher: Watcher) -> list[tuple[str, str]]:
    watcher.log.publish()
    return [(one.kind.value, one.code) for one in watcher.poll()]


# -- admissions ----------------------------------------------------------------------


def test_admission_is_unexplained_only_after_the_bound(filled: Fill) -> None:
    watcher = filled(1)
    watcher.log.admit("x")
    assert poll(watcher) == []
    watcher.now += 899
    assert poll(watcher) == []
    watcher.now += 1
    assert poll(watcher) == [("unexplained", "STO-L134")]
    assert poll(watcher) == []


def test_open_admissions_are_counted(filled: Fill) -> None:
    watcher = filled(2)
    watcher.log.admit("x")
    poll(watcher)
    assert watcher.state is not None
    counts = watcher.state.count_admissions(), watcher.state.count_open()
    assert counts == (3, 1)


def test_explained_admission_raises_no_alarm_later(filled: Fill) -> None:
    watcher = filled(1)
    place = watcher.log.admit("x")
    poll(watcher)
    watcher.log.explain(place, state="withdrawn")
    assert poll(watcher) == []
    watcher.now += 2000
    assert poll(watcher) == []


def test_first_poll_of_an_old_log_judges_by_its_own_times(watcher: Watcher) -> None:
    watcher.log.admit("old", time=90)
    watcher.log.admit("new", time=990)
    assert poll(watcher) == [("unexplained", "STO-L134")]


@pytest.mark.parametrize(
    "changes",
    [
        {"admission": 0},
        {"admission": 77},
        {"admission_leaf": "0" * 64},
        {"admitted_at": 101},
        {"epoch": 2},
    ],
)
def test_record_that_lies_about_its_admission_explains_nothing(
    filled: Fill, changes: dict[str, object]
) -> None:
    watcher = filled(1)
    watcher.log.explain(watcher.log.admit("x"), **changes)
    assert poll(watcher) == [("record_wrong", "STO-L141")]
    watcher.now += 2000
    assert poll(watcher) == [("unexplained", "STO-L134")]


def test_admission_explained_twice_is_told(filled: Fill) -> None:
    watcher = filled(1)
    watcher.log.explain(0, attempt=2)
    assert poll(watcher) == [("record_wrong", "STO-L141")]


# -- records -------------------------------------------------------------------------


def stopped(watcher: Watcher) -> int:
    return watcher.log.append_record(
        OperatorRecord(
            origin="log.test/t",
            time=400,
            act=OperatorAct.SERVER_STOPPED,
            subject="a" * 64,
        )
    )


def test_record_that_comes_late_is_matched_then(filled: Fill) -> None:
    watcher = filled(1)
    watcher.watch(f"commitment:{'a' * 64}")
    place = stopped(watcher)
    data = watcher.log.records.pop(place)
    assert poll(watcher) == []
    watcher.log.records[place] = data
    assert poll(watcher) == [("match", "")]
    watcher.now += 2000
    assert poll(watcher) == []


def test_record_that_never_comes_is_told_with_its_leaf(filled: Fill) -> None:
    watcher = filled(1)
    watcher.watch("kind:operator")
    watcher.log.records.pop(stopped(watcher))
    assert poll(watcher) == []
    watcher.now += 900
    assert poll(watcher) == [("record_missing", "STO-L134"), ("match", "")]


def test_record_that_comes_after_the_alarm_is_matched_all_the_same(
    filled: Fill,
) -> None:
    watcher = filled(1)
    watcher.watch("key:gate")
    place = watcher.log.key_event("died")
    data = watcher.log.records.pop(place)
    poll(watcher)
    watcher.now += 900
    assert poll(watcher) == [("record_missing", "STO-L134")]
    assert poll(watcher) == []
    watcher.log.records[place] = data
    assert poll(watcher) == [("match", ""), ("key", "")]
    assert poll(watcher) == []


def test_wrong_record_does_not_hide_the_right_one_for_good(filled: Fill) -> None:
    watcher = filled(1)
    watcher.watch("key:gate")
    place = watcher.log.key_event("died")
    data = watcher.log.records[place]
    watcher.log.records[place] = watcher.log.records[1]
    assert poll(watcher) == [("record_wrong", "STO-L141")]
    watcher.log.records[place] = data
    assert poll(watcher) == [("match", ""), ("key", "")]
    assert poll(watcher) == []
    assert poll(watcher) == []


def test_record_of_another_leaf_is_told(filled: Fill) -> None:
    watcher = filled(1)
    watcher.log.records[stopped(watcher)] = watcher.log.records[1]
    assert poll(watcher) == [("record_wrong", "STO-L141")]


def test_record_of_another_project_is_told(filled: Fill) -> None:
    watcher = filled(1)
    watcher.log.explain(watcher.log.admit("x"), origin="log.other/t")
    assert poll(watcher) == [("record_wrong", "STO-L141")]


def test_leaf_of_unknown_form_is_told_and_its_text_stays_harmless(filled: Fill) -> None:
    watcher = filled(1)
    watcher.log.append(b"stoilo-entry/v1\n\x1b[31m\n" + b"a" * 64 + b"\n1\n5\n")
    watcher.log.publish()
    (finding,) = watcher.poll()
    assert finding.kind == "leaf_unknown"
    assert "\x1b" not in finding.message


def test_flood_of_one_kind_is_summed_up(watcher: Watcher) -> None:
    for number in range(1003):
        watcher.log.append(b"rubbish %d" % number)
    watcher.log.publish()
    found = watcher.poll()
    assert len(found) == 1001
    assert found[-1].message == "3 more of kind leaf_unknown"


# -- submitters ----------------------------------------------------------------------


def submitters(found: list[Finding]) -> list[str]:
    return [one.kind.value for one in found if "submitter" in one.kind]


def test_each_new_submitter_is_told_once(watcher: Watcher) -> None:
    for name in ("a", "b"):
        watcher.log.explain(watcher.log.admit(name))
    watcher.log.explain(watcher.log.admit("c"), submitter="f" * 64)
    watcher.log.publish()
    assert submitters(watcher.poll()) == ["submitter", "submitter"]


def test_submitter_who_is_not_on_the_list_raises_the_alarm_each_time(
    watcher: Watcher,
) -> None:
    watcher.watch(known=frozenset({"0" * 63 + "1"}))
    watcher.log.explain(watcher.log.admit("a"))
    for name in ("b", "c"):
        watcher.log.explain(watcher.log.admit(name), submitter="f" * 64)
    watcher.log.publish()
    found = watcher.poll()
    assert submitters(found) == ["unknown_submitter"] * 2
    assert {one.code for one in found} == {"STO-L136"}
