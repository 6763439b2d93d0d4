"""An audit as Markdown and as one HTML file that loads nothing from anywhere."""

from html import escape

from protoevfl.privacy.page_parts import Facts, Section, Table
from protoevfl.privacy.words import sections

TITLE = "Privacy audit"
STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;background:#fff}
h1,h2{line-height:1.2}table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}
th,td{border:1px solid #bbb;padding:.3rem .6rem;text-align:left;vertical-align:top}th{background:#f0f0f0}
@media(prefers-color-scheme:dark){body{background:#161616;color:#e8e8e8}th{background:#2a2a2a}th,td{border-color:#555}}
"""


def markdown(facts: Facts) -> str:
    """The report as Markdown."""
    parts = [f"# {TITLE}", ""]
    for section in sections(facts):
        parts += [f"## {section.title}", ""]
        for part in section.parts:
            parts += [_table(part) if isinstance(part, Table) else part, ""]
    return "\n".join(parts)


def _table(table: Table) -> str:
    lines = [table.heads, ("---",) * len(table.heads), *table.lines]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def page(facts: Facts) -> str:
    """The report as a self-contained HTML page."""
    body = "\n".join(_section(section) for section in sections(facts))
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{TITLE}</title>'
    start = f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>'
    return f"{start}<body>\n<h1>{TITLE}</h1>\n{body}\n</body></html>\n"


def _section(section: Section) -> str:
    inside = "\n".join(
        _grid(p) if isinstance(p, Table) else f"<p>{escape(p)}</p>" for p in section.parts
    )
    return f"<section><h2>{escape(section.title)}</h2>\n{inside}</section>"


def _grid(table: Table) -> str:
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in table.heads)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>"
        for line in table.lines
    )
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"
