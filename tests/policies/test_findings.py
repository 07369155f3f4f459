import ast

from stoilo.core.types import Severity
from stoilo.policies.findings import (
    FINDINGS_SHOWN,
    FIRST_PLACE,
    Lines,
    Place,
    has_errors,
    make_finding,
    tidy,
)


def at(line: int, severity: Severity = Severity.ERROR):
    return make_finding("STO-P040", Place.of_chars(line, 1), "what", "do", severity)


def test_findings_come_in_the_order_of_the_text_once() -> None:
    assert tidy([at(3), at(1), at(3), at(2)]) == (at(1), at(2), at(3))


def test_too_many_findings_keep_errors_and_say_so() -> None:
    warnings = [at(line, Severity.WARNING) for line in range(1, FINDINGS_SHOWN + 9)]
    shown = tidy([*warnings, at(999)])
    assert len(shown) == FINDINGS_SHOWN + 1
    assert at(999) in shown
    assert shown[-1].code == "STO-P055"
    assert has_errors(shown)


def test_columns_count_characters_where_the_parser_counts_bytes() -> None:
    text = "x = 'ééé' + y"
    (node,) = [
        one for one in ast.walk(ast.parse(text)) if getattr(one, "id", "") == "y"
    ]
    assert Lines(text).place(node) == Place(1, 13, 1, 14)


def test_node_without_position_stands_at_the_start() -> None:
    assert Lines("x").place(ast.Load()) == FIRST_PLACE


def test_end_before_its_start_is_mended() -> None:
    finding = make_finding("STO-P040", Place(3, 5, 3, 2), "what", "do")
    assert (finding.end_line, finding.end_column) == (3, 5)


def test_long_message_is_cut() -> None:
    assert len(make_finding("STO-P040", FIRST_PLACE, "x" * 9999, "").message) == 400
