"""A report as a single HTML file: it contains the figures, and loads or runs nothing."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape

from hpcrun.actions.studies.report import Part, Report
from hpcrun.views.report.tables import table
from hpcrun.views.report.words import Line, answer_lines, caption, heading, part_lines, report_lines
from hpcrun.views.text import one_line

_STYLE = """\
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222;
  background: #fff }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #ddd }
th { border-bottom: 2px solid #222 }
th:last-child, td:last-child { text-align: left }
.wide { overflow-x: auto } .answer { font-size: 1.3rem; font-weight: 600 }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem }
dt { font-weight: 600 } dd { margin: 0 }
code { background: #f3f3f3; padding: .1rem .3rem; overflow-wrap: anywhere }
img { max-width: 100%; height: auto; margin: 1rem 0 }
@media (max-width: 40rem) { dl { display: block } }"""
# default-src 'none': even an unescaped name could load and run nothing
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def report_html(report: Report, *, figures: Mapping[str, bytes], missing: Sequence[str]) -> str:
    """Return the page.

    Args:
        figures: name → PNG.
        missing: the figures that were not drawn, with the reasons.
    """
    title = escape(one_line(f"Scaling report: {report.options.name}"))
    rest = [*report_lines(report), *(Line("figures", reason) for reason in missing)]
    body = [
        f"<h1>{title}</h1>",
        *map(_answer, answer_lines(report)),
        *(_part(part, report) for part in report.parts),
        *(["<h2>Notes</h2>", _list(rest)] if rest else []),
        *(["<h2>Figures</h2>"] if figures else []),
        *(_image(name, content) for name, content in figures.items()),
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{title}</title>",
            f"<style>\n{_STYLE}\n</style></head>",
            "<body>",
            *body,
            "</body></html>\n",
        ]
    )


def _answer(line: Line) -> str:
    label = f"{escape(line.label)}: " if line.label else ""
    return f"<p{'' if label else ' class=answer'}>{label}{escape(line.text)}{_command(line)}</p>"


def _part(part: Part, report: Report) -> str:
    blocks = [f"<h2>{escape(heading(part.series, report))}</h2>", f"<p>{escape(caption(part.series))}</p>"]
    if part.series.rows:
        columns = table(part)
        rows = zip(*(column.cells for column in columns), strict=True)
        head = "".join(f"<th>{escape(column.heading)}</th>" for column in columns)
        body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        blocks.append(f'<div class="wide"><table>\n<tr>{head}</tr>\n{body}\n</table></div>')
    return "\n".join([*blocks, _list(part_lines(part))])


def _list(lines: Sequence[Line]) -> str:
    items = (f"<dt>{escape(line.label)}</dt><dd>{escape(line.text)}{_command(line)}</dd>" for line in lines)
    return "<dl>\n" + "\n".join(items) + "\n</dl>"


def _command(line: Line) -> str:
    return f"<br><code>{escape(line.command)}</code>" if line.command else ""


def _image(name: str, content: bytes) -> str:
    data = b64encode(content).decode()
    width = int.from_bytes(content[16:20], "big") * 96 // 220  # larger than on paper, and sharp on every screen
    return f'<img alt="{escape(name)}" width="{width}" src="data:image/png;base64,{data}">'
