"""The order of the pages. A page that is not written yet is left out; methods are listed as they are found."""

from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGES = (
    ("Start", "index.md"),
    ("Quickstart", "quickstart.md"),
    ("Your own data", "own-data.md"),
    ("Python", "api.md"),
    ("Methods", "methods"),
    ("Results", "results"),
    ("Between companies", "deployment.md"),
    ("Privacy", "privacy.md"),
    ("Performance", "performance.md"),
    ("Architecture", "architecture.md"),
)


def on_config(config: Any) -> Any:
    """MkDocs calls this after it has read mkdocs.yml."""
    config.nav = [{title: _entry(page)} for title, page in PAGES if (HERE / page).exists()]
    return config


def _entry(page: str) -> Any:
    if page.endswith(".md"):
        return page
    first = f"{page}/proto_evfl.md" if page == "methods" else f"{page}.md"
    others = sorted(p.relative_to(HERE).as_posix() for p in (HERE / page).glob("*.md"))
    return [first, *(p for p in others if p != first)]
