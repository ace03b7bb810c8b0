"""A screen as a picture."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import unescape
from itertools import groupby

from rich.cells import cell_len
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

# rich's own frame names a font on another host: a picture in the docs should need nobody.
_FRAME = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" xml:space="preserve">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  line-height: {line_height}px; font-variant-east-asian: full-width }}
.{unique_id}-title {{ font: bold 16px system-ui, sans-serif }}
{styles}
</style>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""  # noqa: E501
# Each text is clipped to its line, and each line ends with a text of its own: half of the file, and
# nothing to see.
_SURPLUS = re.compile(
    r' clip-path="url\(#[\w-]+-line-\d+\)"|<text [^>]*>\s*</text>|[ \t]+$', re.MULTILINE
)
_LETTER = 13  # pixels: rich draws letters of 20, and a narrow terminal would fill the page
_ASPECT = 0.602  # width by height of a character of DejaVu Sans Mono and Menlo
_THEME = TerminalTheme(
    (30, 34, 42),
    (215, 218, 224),
    [
        (63, 68, 81),
        (224, 108, 117),
        (152, 195, 121),
        (229, 192, 123),
        (97, 175, 239),
        (198, 120, 221),
        (86, 182, 194),
        (215, 218, 224),
    ],
    [
        (127, 132, 142),
        (255, 97, 110),
        (165, 224, 117),
        (240, 197, 95),
        (77, 196, 255),
        (222, 115, 255),
        (76, 209, 224),
        (255, 255, 255),
    ],
)


def svg_text(lines: Sequence[Text], *, name: str, title: str, columns: int) -> str:
    """Return lines of a terminal as an SVG, the same bytes for the same lines.

    Args:
        name: the names within the picture begin so: a page may hold several.
        title: what stands above the terminal.
    """
    console = Console(
        file=io.StringIO(),
        record=True,
        width=columns,
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
    )
    for line in lines:
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    svg = console.export_svg(
        title=title, theme=_THEME, code_format=_FRAME, font_aspect_ratio=_ASPECT, unique_id=name
    )
    return placed(_SURPLUS.sub("", svg))


def placed(svg: str) -> str:
    """Return a picture whose letters are as large as those of others, and stand where the terminal
    has them.

    A browser takes some signs from another font, whose widths differ: each run of these has a place
    of its own.
    """

    def split(match: re.Match[str]) -> str:
        head, left, row, length, text = match.groups()
        cells = re.findall(r"&#?\w+;|.", text)
        wide = float(length) / sum(map(cell_len, map(unescape, cells)))
        parts, at = [], float(left)
        for _, signs in groupby(
            cells, lambda cell: len(unescape(cell)) == 1 and unescape(cell) > "\xff"
        ):
            some = "".join(signs)
            room = wide * cell_len(unescape(some))
            parts.append(f'{head} x="{at:.6g}" y="{row}" textLength="{room:.6g}">{some}</text>')
            at += room
        return "".join(parts)

    svg = re.sub(r'<svg (xmlns="\S+") viewBox="0 0 ([\d.]+) ', _width, svg)
    return re.sub(
        r'(<text class="\S+") x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)">([^<]+)</text>',
        split,
        svg,
    )


def _width(match: re.Match[str]) -> str:
    wide = float(match[2])
    return f'<svg {match[1]} width="{wide * _LETTER / 20:.0f}" viewBox="0 0 {match[2]} '
