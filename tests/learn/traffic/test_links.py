"""What counts of what nodes claim, what is forgotten, and who is named."""

from __future__ import annotations

import math

import pytest

from stoilo.learn.traffic.links import (
    FASTEST,
    LinkMatrix,
    Obedience,
    Term,
    begin_term,
)

SIZE = 1000


def hear(links: LinkMatrix, one: str, other: str, *, sent: float, got: float):
    links.hear((one, other), (one, other), SIZE, sent_s=sent, elapsed_s=2.0)
    links.hear((one, other), (one, other), SIZE, got_s=got, elapsed_s=2.0)


def test_the_smaller_of_two_measures_counts():
    links = LinkMatrix()
    hear(links, "a", "b", sent=1.0, got=2.0)
    assert links.rate("a", "b") == SIZE / 2.0
    assert links.rate("b", "a") is None


def test_a_rate_is_forgotten_after_five_iterations():
    links = LinkMatrix()
    hear(links, "a", "b", sent=1.0, got=1.0)
    links.advance(5)
    assert links.rate("a", "b") == SIZE
    links.advance(6)
    assert links.rate("a", "b") is None
    assert not links.rates()


def test_a_matrix_without_end_of_memory_keeps_it():
    links = LinkMatrix(None)
    hear(links, "a", "b", sent=1.0, got=1.0)
    links.advance(1000)
    assert links.rates() == {("a", "b"): SIZE}


@pytest.mark.parametrize("claim", [0.0, -1.0, math.nan, math.inf, 1e9, 1e-30])
def test_no_claim_leaves_what_can_be(claim: float):
    links = LinkMatrix()
    links.hear(1, ("a", "b"), SIZE, got_s=claim, elapsed_s=2.0)
    rate = links.rate("a", "b")
    assert rate is not None
    assert SIZE / 2.0 <= rate <= FASTEST


def test_who_contradicts_two_others_is_named_and_no_longer_believed():
    links = LinkMatrix()
    for other in ("b", "c"):
        hear(links, "liar", other, sent=0.1, got=1.0)
    assert links.named() == {"liar": ["rates"]}
    links.hear(2, ("d", "liar"), SIZE, got_s=2.0, elapsed_s=2.0)
    links.hear(2, ("d", "liar"), SIZE, sent_s=1.0, elapsed_s=2.0)
    assert links.rate("d", "liar") == SIZE


def test_one_contradiction_names_nobody():
    links = LinkMatrix()
    for _ in range(3):
        hear(links, "a", "b", sent=0.1, got=1.0)
    assert not links.named()


def test_contradictions_within_noise_are_none():
    links = LinkMatrix()
    for other in ("b", "c"):
        hear(links, "a", other, sent=0.001, got=0.04)
    assert not links.named()


def test_a_liar_drags_nobody_along():
    links = LinkMatrix()
    for other in ("b", "c", "d", "b"):
        links.dispute("liar", other, "bytes")
    links.dispute("b", "e", "bytes")  # by itself, for the liar does not count
    assert links.named() == {"liar": ["bytes"]}


def test_a_name_is_forgotten_as_rates_are():
    links = LinkMatrix()
    for other in ("b", "c"):
        links.dispute("a", other, "stalled")
    assert links.is_named("a", "stalled")
    links.advance(6)
    assert not links.is_named("a", "stalled")


def test_of_two_coordinators_the_newer_is_obeyed():
    agent, first = Obedience(), begin_term([], "x")
    second = begin_term([first], "y")
    assert agent.accepts(first)
    assert agent.accepts(second)
    assert not agent.accepts(first)
    assert agent.accepts(second)


def test_two_that_start_at_once_differ():
    one, other = (begin_term([Term(3, "old")], name) for name in ("x", "y"))
    agent = Obedience()
    assert agent.accepts(other)
    assert not agent.accepts(one)
