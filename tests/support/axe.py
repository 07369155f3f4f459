"""What axe-core finds wrong with the page that a browser shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from axe_playwright_python.sync_playwright import Axe

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = Axe()
VIEWS = [(scheme, width) for scheme in ("light", "dark") for width in (390, 1280)]
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
