"""The page of the project's own nodes: geometry from a record, and the page over HTTP."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import msgspec
import pytest

from stoilo.learn.traffic.topology import Tree, list_trees
from stoilo.web.console.traffic import LABEL, ROW, SHADES, draw, shade, shade_rates
from tests.support.console import ConsoleBench, Door
from tests.support.serverbench import make_bench
from tests.support.traffic import Told, make_record

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "/console/traffic"
RECORD = make_record()


def find(name: str) -> Tree:
    return next(one for one in list_trees(RECORD.events) if one.name == name)


@pytest.mark.parametrize("name", ["version 3", "round 3"])
def test_each_node_has_its_line_and_transfers_end_when_they_did(name: str) -> None:
    tree = find(name)
    lines = draw(tree)
    assert [one.y for one in lines] == [ROW * (i + 1) for i in range(12)]
    assert [one.path for one in lines if not one.path] == [""]  # the root's alone
    for step, line in zip(tree.steps, lines, strict=True):
        assert LABEL <= line.x <= LABEL + 466
        assert not line.path or f"H{line.x}" in line.path
        assert bool(step.partner) == (1 <= line.shade <= SHADES)


def test_line_of_a_version_begins_at_who_gave_it_and_of_a_round_ends_there() -> None:
    for name, end in (("version 3", r"^M\d+ (\d+)V"), ("round 3", r"V(\d+)$")):
        rows = {one.name: one for one in draw(find(name))}
        for step in find(name).steps[1:]:
            found = re.search(end, rows[step.node].path)
            assert found is not None
            assert int(found[1]) == rows[step.partner].y


def test_tree_without_a_receipt_is_a_dot() -> None:
    alone = dataclasses.replace(find("round 3"), steps=find("round 3").steps[:1])
    (line,) = draw(dataclasses.replace(alone, last_s=0.0))
    assert (line.path, line.x) == ("", LABEL)


def test_rates_stand_by_sender_and_the_fastest_is_the_darkest() -> None:
    table = shade_rates(RECORD)
    cells = {(a, b): (rate, how) for a, row in table.items() for b, rate, how in row}
    assert {pair for pair, (rate, _) in cells.items() if rate} == {
        (a, b) for a, b, _ in RECORD.rates
    }
    assert max(cells.values())[1] == SHADES
    assert (shade(0.0, 0.0), shade(1e-9, 1.0), shade(0.5, 1.0)) == (0, 1, 3)


def test_operator_sees_nodes_tree_times_and_faults(shared: ConsoleBench) -> None:
    answer = shared.visitor("olga", "operator").ask(PAGE)
    for text in (
        "12 nodes, 2 transfers under way",
        "n1 and n12 contradict each other (bytes)",
        "n12 gone none 0 bytes 0 bytes bytes",
        "Round 3, as it was added up",
        "bytes came that have another digest",
    ):
        assert text in answer.words, text
    assert answer.text.count("<circle") == 12
    assert f'href="{PAGE}" aria-current="page"' in answer.text


def test_chosen_tree_is_drawn_and_an_unknown_one_is_the_newest(
    shared: ConsoleBench,
) -> None:
    visitor = shared.visitor("olga", "operator")
    assert "Version 2, as it spread" in visitor.ask(f"{PAGE}?tree=version+2").words
    assert "Round 3, as it was" in visitor.ask(f"{PAGE}?tree=version+99").words
    assert visitor.ask(f"{PAGE}?tree={'x' * 999}").status == 400


def test_no_dispatcher_is_said_and_has_no_link(served: ConsoleBench) -> None:
    visitor = served.visitor("olga", "operator")
    assert "knows no dispatcher" in visitor.ask(PAGE).words
    assert PAGE not in visitor.ask("/console/project").text


def test_dispatcher_that_is_gone_is_said_to_be(
    door: Door, tmp_path: Path, told: Told
) -> None:
    file = tmp_path / "connection.json"
    place = msgspec.structs.replace(told.place, shard="127.0.0.1:1")
    file.write_bytes(msgspec.json.encode(place))
    bench = make_bench(tmp_path)
    for named, code in ((file, "STO-C050"), (tmp_path / "none", "STO-C045")):
        served = door.show(bench, dispatcher=str(named))
        answer = served.visitor("olga", "operator").ask(PAGE)
        assert (answer.status, code in answer.words) == (200, True)
        assert told.place.token not in answer.text


def test_names_of_nodes_are_text(door: Door, tmp_path: Path, told: Told) -> None:
    bad = "<script>alert(1)</script>"
    places = {**RECORD.nodes, bad: "x"}
    told.record = msgspec.structs.replace(RECORD, nodes=places)
    served = door.show(make_bench(tmp_path), dispatcher=str(told.file))
    answer = served.visitor("olga", "operator").ask(PAGE)
    told.record = RECORD
    assert f"{bad} x" in answer.words
    assert "<script" not in answer.text
