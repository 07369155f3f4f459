"""The pages in a real Chromium: what a person sees, and what hostile text cannot do."""

import itertools
import re

import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from stoilo.audit.format.proof import check_proof
from stoilo.server.http.web_server import PublicPlace
from stoilo.web.archive import look
from stoilo.web.routes import audit_pages
from tests.support.axe import find_grave
from tests.support.contrast import CONTRAST

PATHS = [
    "",
    "entry/9",
    "entry/21",
    "task/pi",
    "task/secret",
    "task/hostile",
    "search?q=8",
]
SAVED = {"/audit/entry/{index}.tlog-proof", "/audit/static/{name}"}
PLACES = """() => {
  const line = [...document.querySelectorAll('.line')].find(l => /\\u05d0/.test(l.textContent));
  const walker = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node; (node = walker.nextNode());)
    for (let i = 0; i < node.length; i++) {
      const range = document.createRange();
      range.setStart(node, i); range.setEnd(node, i + 1);
      if (node.data[i].trim()) found.push(range.getBoundingClientRect().left);
    }
  return found;
}"""


def see(open_page, site, path, **options):
    watched = open_page(**options)
    assert watched.goto(f"{site}audit/{path}") == 200
    return watched


@pytest.mark.parametrize("path", PATHS)
def test_page_renders_without_complaint_and_asks_nobody_else(open_page, site, path):
    watched = see(open_page, site, path)
    assert watched.page.locator("h1").count() == 1
    assert watched.page.locator("main").inner_text()
    assert watched.complaints == []
    assert all(url.startswith(f"{site}audit/") for url in watched.asked)


def test_every_page_of_the_log_is_looked_at(archive, site):
    places = [f"/audit/{one.partition('?')[0]}" for one in PATHS]
    routes = audit_pages(PublicPlace(archive[0], site))
    unseen = {one.path for one in routes if not any(map(one.path_regex.match, places))}
    assert unseen == SAVED


@pytest.mark.parametrize(("scheme", "width"), [("dark", 390), ("light", 1280)])
def test_axe_finds_nothing_grave(open_page, site, scheme, width):
    watched = open_page(width=width, scheme=scheme)
    for path in PATHS:
        assert watched.goto(f"{site}audit/{path}") == 200
        assert find_grave(watched.page) == [], path
    watched.page.evaluate("document.querySelector('footer p').style.color = '#777'")
    assert [one.split()[0] for one in find_grave(watched.page)] == ["color-contrast"]


@pytest.mark.parametrize("path", PATHS)
def test_page_fits_a_narrow_screen(open_page, site, path):
    page = see(open_page, site, path, width=320).page
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["", "task/hostile", "task/revoked"])
def test_every_text_has_enough_contrast(open_page, site, path, scheme):
    page = see(open_page, site, path, scheme=scheme).page
    ratios = page.evaluate(CONTRAST)
    assert len(ratios) > 20
    assert ratios[0][0] >= 4.5, ratios[0]


def test_contrast_check_finds_a_faint_text(open_page, site):
    page = see(open_page, site, "").page
    page.evaluate("document.querySelector('h1').style.color = '#999'")
    assert page.evaluate(CONTRAST)[0][0] < 4.5  # control


def test_dark_scheme_is_dark(open_page, site):
    colour = "getComputedStyle(document.body).backgroundColor"
    pages = [see(open_page, site, "", scheme=one).page for one in ("light", "dark")]
    assert [page.evaluate(colour) for page in pages] == [
        "rgb(255, 255, 255)",
        "rgb(23, 24, 27)",
    ]


def test_source_is_coloured(open_page, site):
    page = see(open_page, site, "task/pi").page
    colour = "node => getComputedStyle(node).color"
    classes = [".line .k", ".line .s", ".line .c", ".line .n", ".line .d", ".line .b"]
    seen = {page.locator(one).first.evaluate(colour) for one in [*classes, ".listing"]}
    assert len(seen) == len(classes) + 1


def test_anchor_scrolls_to_its_line_and_marks_it(open_page, site):
    page = see(open_page, site, "task/pi#L12").page
    line = page.locator("#L12")
    box = line.bounding_box()
    assert 0 <= box["y"] < 900 - box["height"]
    background = "node => getComputedStyle(node).backgroundColor"
    assert line.evaluate(background) != page.locator("#L11").evaluate(background)


def test_click_on_a_line_number_is_a_link_to_it(open_page, site):
    page = see(open_page, site, "task/pi").page
    page.get_by_role("link", name="Line 7", exact=True).click()
    assert page.url.endswith("/task/pi#L7")


def test_copied_source_has_no_line_numbers(open_page, site, shown_source):
    page = see(open_page, site, "task/pi").page
    assert page.locator(".listing code").inner_text().strip() == shown_source.strip()


def test_downloaded_proof_verifies(open_page, site, archive, tmp_path):
    page = see(open_page, site, "entry/8").page
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download the proof").click()
    assert waiting.value.suggested_filename == "entry-8.tlog-proof"
    waiting.value.save_as(tmp_path / "proof")
    with look(archive[0]) as view:
        leaf = view.entry(8).data
    proof = (tmp_path / "proof").read_bytes()
    assert check_proof(proof, leaf, archive[1].policy).index == 8


def test_hostile_source_stays_inert(open_page, site):
    watched = see(open_page, site, "task/hostile")
    assert re.fullmatch("Task [0-9a-f]{12} · audit log", watched.page.title())
    assert watched.page.locator("script, .listing img, .listing [onerror]").count() == 0
    assert (
        "<script>document.title = 'owned'" in watched.page.locator("#L1").inner_text()
    )
    assert watched.complaints == []


def page_without_escape(source, headers):
    answer = HTMLResponse(f"<title>safe</title><pre><code>{source}", headers=headers)
    return Starlette(routes=[Route("/audit/", lambda _: answer)])


def test_page_that_escaped_nothing_would_run_it(open_page, serving, hostile_source):
    with serving(page_without_escape(hostile_source, {})) as url:
        page = see(open_page, url, "").page
        assert page.title() == "owned"  # control: the text is as hostile as it looks


def test_headers_alone_stop_what_is_not_escaped(
    open_page, serving, get, hostile_source
):
    headers = {
        "content-security-policy": get("/audit/").headers["content-security-policy"]
    }
    with serving(page_without_escape(hostile_source, headers)) as url:
        watched = see(open_page, url, "")
        assert watched.page.title() == "safe"
        assert any("Content Security Policy" in one for one in watched.complaints)


def test_right_to_left_letters_stand_in_the_order_of_the_text(open_page, site):
    page = see(open_page, site, "task/hostile").page
    places = page.evaluate(PLACES)
    assert places == sorted(places)


def test_without_the_style_sheet_letters_would_be_reordered(open_page, site):
    page = see(open_page, site, "task/hostile").page
    page.evaluate(
        "[...document.styleSheets].forEach(sheet => { sheet.disabled = true; })"
    )
    places = page.evaluate(PLACES)
    assert places != sorted(places)  # control


def test_keyboard_alone_skips_to_the_content(open_page, site):
    page = see(open_page, site, "").page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"


def test_keyboard_alone_searches(open_page, site):
    page = see(open_page, site, "").page
    page.get_by_label("Search").focus()
    page.keyboard.type("pi")
    page.keyboard.press("Enter")
    page.wait_for_url("**/audit/search?q=pi")
    assert "2 entries" in page.locator("main").inner_text()


def test_page_is_whole_without_javascript(browser, site):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site}audit/task/pi#L12")
    assert "Estimate pi by darts" in page.locator("main").inner_text()
    assert page.locator("summary").first.is_visible()
    context.close()


def test_every_region_of_a_page_has_a_name(open_page, site):
    page = see(open_page, site, "task/pi").page
    for region in page.get_by_role("region").all():
        assert region.get_attribute("aria-label") or region.get_attribute(
            "aria-labelledby"
        )
    headings = page.locator("h1, h2, h3").evaluate_all(
        "all => all.map(h => +h.tagName[1])"
    )
    steps = [b - a for a, b in itertools.pairwise(headings)]
    assert headings[0] == 1
    assert max(steps) <= 1
