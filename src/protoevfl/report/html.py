"""Small pieces of HTML: everything that comes from records is escaped."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

NOTHING = "–"


@dataclass(frozen=True)
class Text:
    """A table's cell: what is shown (already HTML) and what it is sorted by."""

    html: str
    sort: str = ""
    wide: bool = False


def text(value: object, wide: bool = False) -> Text:
    shown = "" if value is None else str(value)
    return Text(escape(shown), shown, wide)


def number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def figure_text(value: float | None, digits: int = 1) -> Text:
    return Text(number(value, digits), "" if value is None else repr(float(value)))


def table(name: str, head: Sequence[str], rows: Sequence[Sequence[Text]], searchable: bool | None = None) -> str:
    """A table that sorts; with a filter when it has more than eight rows."""
    if not rows:
        return "<p class='soft'>Nothing recorded.</p>"
    heads = "".join(f'<th scope="col"><button type="button">{escape(h)}</button></th>' for h in head)
    body = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in rows)
    box = ""
    if len(rows) > 8 if searchable is None else searchable:
        box = (
            f'<div class="filter"><label>Filter <input type="search" data-for="{name}" '
            f'placeholder="words, all must occur"></label><output data-for="{name}"></output></div>'
        )
    return (
        f'{box}<div class="table"><table class="sortable" id="{name}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(cell: Text) -> str:
    kind = ' class="wide"' if cell.wide else ""
    return f'<td{kind} data-v="{escape("" if cell.sort == NOTHING else cell.sort)}">{cell.html}</td>'


def paragraph(sentence: str, kind: str = "") -> str:
    return f"<p{f' class={kind!r}' if kind else ''}>{escape(sentence)}</p>"
