"""Whether the page that a browser shows can be read, and what axe-core finds wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from axe_playwright_python.sync_playwright import Axe

from tests.support.contrast import CONTRAST, WIDE

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = Axe()
VIEWS: list[tuple[Literal["light", "dark"], int]] = [
    (scheme, width) for scheme in ("light", "dark") for width in (390, 1280)
]
GRAVE = frozenset({"serious", "critical"})


def find_grave(page: Page) -> list[str]:
    """Return every serious or critical finding: rule, place, what is wrong."""
    found = AXE.run(page).response["violations"]
    return [
        f"{one['id']} at {node['target']}: {node['failureSummary']}"
        for one in found
        if one["impact"] in GRAVE
        for node in one["nodes"]
    ]


def check_views(page: Page, *, axe: bool = False) -> None:
    """See that a page fits and can be read in every view; axe needs a page with scripts."""
    for scheme, width in VIEWS:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(WIDE) == 0, (page.url, width)
        assert page.evaluate(CONTRAST)[0][0] >= 4.5, (page.url, scheme)
        assert find_grave(page) == [] if axe else True, (page.url, scheme, width)
