"""How Sphinx makes a site of the pages as they stand in the repository."""

from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "tutorial": "Learn",
    "howto": "Do",
    "reference": "Look up",
    "explanation": "Understand",
    "adr": "Decisions",
}
project = "stoilo"
project_copyright = "the stoilo developers"
root_doc = "docs/README"
include_patterns = ["docs/**.md", "*.md"]
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "stoilo"
html_copy_source = False
html_extra_path = ["index.html"]
html_show_sphinx = False


def list_pages(_app: object, page: str, text: list[str]) -> None:
    """Give the first page a table of all: forges, which show it too, have their own."""
    if page != root_doc:
        return
    for folder, caption in FOLDERS.items():
        entries = "\n".join(
            f"{folder}/{path.stem}"
            for path in sorted((ROOT / "docs" / folder).glob("*.md"))
        )
        text[0] += (
            f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"
        )
    others = "\n".join(f"../{path.stem}" for path in sorted(ROOT.glob("*.md")))
    text[0] += (
        f"\n```{{toctree}}\n:hidden:\n:caption: Project\n\n{others}\nknown-gaps\n```\n"
    )


def setup(app: Any) -> None:  # noqa: ANN401 - Sphinx is in an environment of its own
    """Let Sphinx call us."""
    app.connect("source-read", list_pages)
