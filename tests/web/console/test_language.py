"""Every page in a pretended language: what of it is left in English is data or a fault."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stoilo.core.errors import UsageError
from stoilo.server.watching.metrics import METRICS
from stoilo.web.language import _CHOSEN, FOLDER, Languages
from stoilo.web.pages import open_templates
from tests.support.catalogues import (
    FIELD,
    Texts,
    outside,
    pretend_all,
    unmarked,
    write_catalogue,
)
from tests.support.reviews import Desk, make_desk, reviewed
from tests.web.console import test_accessibility as pages
from tests.web.console.test_accessibility import tasks, visitor, visitors

if TYPE_CHECKING:
    from tests.support.console import Visitor

__all__ = ["tasks", "visitor", "visitors"]
SCRIPT = Path(__file__).parents[3] / "scripts/write_messages.py"
SPEC = importlib.util.spec_from_file_location("write_messages", SCRIPT)
WRITTEN = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(WRITTEN)
MESSAGES = WRITTEN.find_messages()
TEMPLATES = open_templates("", {})
LOADER = TEMPLATES.loader


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return a bench whose operator has a catalogue of the language `xx`."""
    folder = tmp_path_factory.mktemp("language")
    write_catalogue(folder / FOLDER, "xx", pretend_all(MESSAGES))
    return make_desk(folder, reviewed("numeric"))


def ask(visitor: Visitor, place: str, asked: str = "de, xx-CH;q=0.9, en;q=0.1") -> str:
    return visitor.ask(place, accept_language=asked).text


@pytest.mark.parametrize("page", pages.PAGES)
def test_page_is_all_in_the_language_that_is_asked_for(
    visitors: dict[str, Visitor], tasks: dict[str, str], page: str
) -> None:
    html = ask(pages.who(visitors, page), pages.place(tasks, page))
    assert '<html lang="xx">' in html
    assert left_over(html) == []


def test_english_page_would_be_found_out(
    visitor: Visitor, tasks: dict[str, str]
) -> None:
    html = ask(visitor, pages.place(tasks, ""), "en")
    assert '<html lang="en">' in html
    assert {"Your tasks", "State", "Skip to content"} <= {*left_over(html)}


def left_over(html: str) -> list[str]:
    return [text for text in Texts(html, DATA).found if is_english(text)]


@pytest.mark.parametrize("name", TEMPLATES.list_templates(["html"]))
def test_template_has_no_words_of_its_own(name: str) -> None:
    source, _, _ = LOADER.get_source(TEMPLATES, name)
    assert unmarked(TEMPLATES, source) == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("<p>Hello</p>", "Hello"),
        ('<p aria-label="Hello">{{ x }}</p>', "Hello"),
        ('{{ "banned" if x else "" }}', "banned"),
        ('{{ x or "none" }}', "none"),
        ('{{ x("Press it") }}', "Press it"),
        ('{% if x %}{{ _("yes") }}{% else %}no way{% endif %}', "no way"),
    ],
)
def test_words_of_a_template_s_own_are_found(source: str, words: str) -> None:
    assert unmarked(TEMPLATES, source) == [words]


def test_markup_of_a_catalogue_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    hostile = {"Find": "<b>Find</b>", "Entry %(value)s": "<i>%(value)s</i>"}
    write_catalogue(tmp_path, "xx", pretend_all([]) | hostile)
    route = Languages(tmp_path)
    page = '{{ _("Find") }} {% trans value="<u>" %}Entry {{ value }}{% endtrans %}'
    shown = in_language(route, page)
    assert shown == "&lt;b&gt;Find&lt;/b&gt; &lt;i&gt;&lt;u&gt;&lt;/i&gt;"


def in_language(languages: Languages, source: str) -> str:
    before = _CHOSEN.set(("xx", languages._known["xx"]))
    try:
        return TEMPLATES.from_string(source).render()
    finally:
        _CHOSEN.reset(before)


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ("", "en"),
        ("de", "de"),
        ("DE-at, en", "de"),
        ("pt-BR", "pt-br"),
        ("pt", "en"),
        ("en;q=0.5, de;q=0.8", "de"),
        ("de;q=0, en", "en"),
        ("fr, de;q=0.1", "de"),
        ("*", "en"),
        ("../../etc, de", "de"),
        ("de;q=\x00", "en"),
        ("x" * 10_000 + ",de", "en"),
    ],
)
def test_language_is_the_best_of_those_that_are_there(
    tmp_path: Path, asked: str, chosen: str
) -> None:
    for name in ("de", "pt_BR"):
        write_catalogue(tmp_path, name, pretend_all([]))
    assert Languages(tmp_path).choose(asked) == chosen


def test_file_that_is_no_catalogue_is_said_at_the_start(tmp_path: Path) -> None:
    place = tmp_path / "xx" / "LC_MESSAGES"
    place.mkdir(parents=True)
    (place / "stoilo.mo").write_bytes(b"no catalogue")
    with pytest.raises(UsageError, match="STO-U004"):
        Languages(tmp_path)


def test_answer_says_that_it_goes_by_the_language(visitor: Visitor) -> None:
    assert visitor.ask("/console/").headers["vary"] == "accept-language"


def test_live_part_is_kept_by_language(visitor: Visitor, tasks: dict[str, str]) -> None:
    found = [
        ask(visitor, pages.place(tasks, "labels"), one) for one in ("xx", "en", "xx")
    ]
    assert ["⟦Lábél⟧" in one for one in found] == [True, False, True]


DATA = frozenset({"code", "pre"})
# What stands on pages as the server, a rule or a command says it: a level, a role, a key's
# state, a fault's kind, the name of a digest, what metrics mean, why a task waits
SAID = {"pure", "reviewer", "expired", "bytes", "Arguments"}
SAID |= {one.help.removesuffix(".") for one in METRICS}
SAID |= {"waits for a reviewer's signature [STO-R022]"}
PIECES = {
    piece.strip(" .,:;()")
    for message in MESSAGES
    for form in ((message,) if isinstance(message, str) else message)
    for piece in FIELD.split(form)
    if re.search(r"[A-Za-z]{3,}", piece)
}


def is_english(text: str) -> bool:
    """Say whether a message, or what stands between its fields, is there in English."""
    said = outside(text)
    if said.strip(" .,:;()\n") in SAID:
        return False
    return any(
        piece in said if " " in piece else piece == said.strip(" .,:;()\n")
        for piece in PIECES
    )
