from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.boinc.xml import Element, XmlBounds, escape, parse_xml
from stoilo.core.errors import TrustError

BOUNDS = XmlBounds(document_bytes=1_000_000, depth=5, elements=1000)


def parse(text):
    return parse_xml(text.encode(), BOUNDS)


def test_elements_text_cdata_comments_and_attributes():
    root = parse(
        '<?xml version="1.0"?>\n<!-- c --><a x="1"> t <b/><c>1 &lt; 2</c>'
        "<d><![CDATA[<raw> & ]]></d><c>3</c></a>\n"
    )
    assert (root.tag, root.text) == ("a", "t")
    assert [child.text for child in root.every("c")] == ["1 < 2", "3"]
    assert root.string("d") == "<raw> &"
    assert root.find("x") is None


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("&lt;&gt;&amp;&quot;&apos;", "<>&\"'"),
        ("&#65;&#x42;", "AB"),
        ("&unknown; & alone", "&unknown; & alone"),
        ("&amp;lt;", "&lt;"),
        ("&#0;&#xD800;&#x110000;", "???"),
    ],
)
def test_references(text, meaning):
    assert parse(f"<a>{text}</a>").text == meaning


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "<a>",
        "</a>",
        "<a></b>",
        "<a/><b/>",
        "<a/>x",
        "x<a/>",
        "<a></a ><",
        "<!DOCTYPE a><a/>",
        "<!ENTITY a 'b'><a/>",
        "<a><!ELEMENT b></a>",
        "<a><?php ?></a>",
        "<a b></a>",
        "<a b=c/>",
        "<a 'b'/>",
        "<1/>",
        "< a/>",
        "<a><![CDATA[x</a>",
        "<!-- x",
        "<![CDATA[x]]>",
        "<a/ >",
        "</a/>",
        "<a>\0</a>",
        "<a><a><a><a><a><a>" + "</a>" * 6,
    ],
)
def test_what_is_not_the_subset_is_refused(text):
    with pytest.raises(TrustError, match="STO-X030"):
        parse(text)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e19", "x", "1 2", "0x10"])
def test_number_that_is_not_usable_is_refused(text):
    with pytest.raises(TrustError, match="STO-X030"):
        parse(f"<a><n>{text}</n></a>").number("n")


def test_numbers_flags_and_defaults():
    root = parse("<a><n>1.000000</n><yes/><no>0</no></a>")
    assert (root.integer("n"), root.integer("m", 7)) == (1, 7)
    assert (root.flag("yes"), root.flag("no"), root.flag("m")) == (True, False, False)


@given(st.text(st.characters(exclude_characters="\x00"), max_size=200))
def test_escaped_text_comes_back_but_for_control_characters(text):
    data = f"<a>{escape(text)}</a>".encode("utf-8", "replace")
    got = parse_xml(data, BOUNDS).text
    clean = "".join(c if c >= " " or c in "\t\n\r" else "?" for c in text)
    assert got == clean.encode("utf-8", "replace").decode().strip()


@given(st.text(alphabet="<>/!-[]a &;#x\"'=?CDAT", max_size=100))
def test_any_text_ends_in_an_element_or_our_error(text):
    try:
        assert isinstance(parse(text), Element)
    except TrustError as error:
        assert error.code == "STO-X030"


@pytest.mark.parametrize(
    "text",
    [
        "<a>" * 300_000,
        "<" * 900_000,
        "<!--" * 200_000,
        "&" * 900_000,
        "<a " + "a=" * 99999,
    ],
)
def test_hostile_repetition_takes_linear_time(text):
    start = time.process_time()
    with pytest.raises(TrustError):
        parse("<r>" + text)
    assert time.process_time() - start < 2.0
