"""Files of lines: each line in one part, whatever its bytes; and where records go."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.learn.core.data import chain
from stoilo.learn.core.text_files import (
    deal_blocks,
    deal_by_key,
    number_triples,
    number_words,
    parse_columns,
    parse_set,
    parse_triple,
    parse_vector,
    read_lines,
    split_lines,
)

LINES = st.lists(
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=30),
    max_size=30,
)


@given(lines=LINES, parts=st.integers(1, 40), ending=st.sampled_from(["\n", "\r\n"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_every_line_is_in_one_range_and_in_its_order(lines, parts, ending, tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(ending.join(lines).encode())
    ranges = split_lines(path, parts)
    assert len(ranges) == parts
    assert [line for one in ranges for line in one] == [x for x in lines if x.strip()]


def test_ranges_of_equal_lines_are_of_equal_size(tmp_path):
    path = tmp_path / "lines"
    path.write_text("123456789\n" * 1000)
    assert [len(list(part)) for part in split_lines(path, 4)] == [250] * 4


def test_columns_become_parts_through_a_chain_of_transforms(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("\n".join(f"{i},{i * 2},{i % 3}" for i in range(9)))

    def halve(pair):
        return pair[0] / 2.0, pair[1]

    parts = read_lines(path, parse_columns(), 2, chain(halve, halve))
    x = np.concatenate([part.x for part in parts])
    assert len(parts) == 2
    assert x[4].tolist() == [1.0, 2.0]
    assert np.concatenate([part.y for part in parts]).tolist() == [*range(3)] * 3


def test_line_that_is_not_understood_is_quoted(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("1,2,0\n1,two,0\n")
    with pytest.raises(UsageError) as caught:
        read_lines(path, parse_columns(), 1)
    assert caught.value.code == "STO-T004"
    assert "1,two,0" in caught.value.message


def test_file_without_lines_is_named(tmp_path):
    path = tmp_path / "empty"
    path.write_text("\n \n")
    with pytest.raises(UsageError, match="no lines") as caught:
        read_lines(path, parse_columns(), 2)
    assert caught.value.code == "STO-T004"


def test_triples_of_one_row_or_column_stay_together():
    triples = [parse_triple(f"u{i % 7} f{i % 5} {i}") for i in range(70)]
    for place in (0, 1):
        dealt = deal_by_key(triples, 3, lambda triple, place=place: triple[place])
        names = [{triple[place] for triple in part} for part in dealt]
        assert sorted(t for part in dealt for t in part) == sorted(triples)
        assert sum(map(len, names)) == len(set.union(*names))


def test_blocks_keep_a_row_in_a_row_and_a_column_in_a_column():
    triples = [(f"u{i}", f"f{j}", 1.0) for i in range(8) for j in range(8)]
    blocks = deal_blocks(triples, 2, 3)
    rows = [{t[0] for block in band for t in block} for band in blocks]
    columns = [{t[1] for band in blocks for t in band[j]} for j in range(3)]
    assert not rows[0] & rows[1]
    assert sum(map(len, columns)) == 8


def test_records_go_to_the_same_part_in_every_process():
    assert deal_by_key("abcdefgh", 3, str)[0] == ["c", "f"]


def test_vectors_and_sets_begin_with_their_identifier():
    name, vector = parse_vector("user 1 2.5")
    assert (name, vector.tolist()) == ("user", [1.0, 2.5])
    assert parse_set("item a b a") == ("item", {"a", "b"})
    assert parse_triple("a,b,3", ",") == ("a", "b", 3.0)
    assert parse_triple("a b") == ("a", "b", 1.0)


def test_triples_become_numbers_that_the_names_say():
    triples = [("bob", "tea", 1.0), ("ann", "rum", 2.0), ("cid", "tea", 4.0)]
    dealt = deal_by_key(triples, 20, lambda triple: triple[0])
    parts, rows, columns = number_triples(dealt)
    found = {
        (rows[r], columns[c], value)
        for part in parts
        for (r, c), value in zip(part.x, part.y, strict=True)
    }
    assert found == set(triples)
    assert (rows, columns, len(parts)) == (["ann", "bob", "cid"], ["rum", "tea"], 3)


def test_words_become_numbers_and_short_lines_are_filled_up():
    found, words = number_words([["b", "a", "b"], [], ["c"]])
    assert words == ["a", "b", "c"]
    assert found.tolist() == [[1, 0, 1], [-1, -1, -1], [2, -1, -1]]
    assert number_words([])[1] == []
