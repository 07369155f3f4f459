"""What a mirror fetches and drops; lists and indexes of hostile others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError
from stoilo.server.mirror.listing import (
    Listed,
    parse_index,
    parse_listing,
    plan,
    render_index,
    render_listing,
)

DIGESTS = st.integers(0, 30).map(lambda number: f"{number:064x}")
FILES = st.lists(
    st.builds(Listed, DIGESTS, st.integers(0, 100)), unique_by=lambda one: one.digest
)
A, B, C = (Listed(name * 64, 40) for name in "abc")


@given(FILES)
def test_list_survives_the_wire(files):
    assert parse_listing(render_listing(files)) == tuple(files)
    digests = frozenset(one.digest for one in files)
    assert parse_index(render_index(digests)) == digests


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_list_or_our_error(data):
    for parse in (parse_listing, parse_index):
        try:
            parse(data)
        except TrustError:
            pass


@pytest.mark.parametrize("line", ["../../etc/passwd 5", "a" * 64, f"{'A' * 64} 5"])
def test_list_with_another_line_is_refused(line):
    with pytest.raises(TrustError, match="STO-B054"):
        parse_listing(line.encode())


@given(FILES, st.sets(DIGESTS), st.integers(0, 500))
def test_plan_never_holds_more_than_there_is_room(files, held, most):
    todo = plan(files, dict.fromkeys(held, 1), most)
    dropped = {*todo.evict, *(one.digest for one in todo.left_out)}
    assert sum(one.size for one in files if one.digest not in dropped) <= most
    assert set(todo.evict) <= held


def test_plan_fetches_what_is_missing_and_evicts_what_was_dropped():
    todo = plan([A, B, C], {B.digest: 40, "d" * 64: 1}, 80)
    assert todo.fetch == (A,)
    assert todo.evict == ("d" * 64,)
    assert todo.left_out == (C,)
