"""What a page is made of, and how it becomes one HTML file that needs no other and no network."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jinja2


@dataclass
class Picture:
    """A PNG file, with words for who cannot see it, and what to conclude from it."""

    file: Path
    alt: str
    caption: str = ""


@dataclass
class Table:
    """Rows of numbers and words; those of `prose` become blocks where the screen is narrow."""

    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    prose: bool = False


@dataclass
class Section:
    """A heading, what to know before looking, and what there is to see.

    A dark page inverts charts, but no photos or strips of them. `legend` names colours (red, green, blue).
    """

    title: str
    words: str = ""
    table: Table | None = None
    pictures: Sequence[Picture] = ()
    kind: Literal["charts", "photos", "strips"] = "charts"
    legend: Sequence[tuple[Sequence[int], str]] = ()
    folded: str = ""


def write(path: Path, title: str, lead: Sequence[tuple[str, Any, str]], sections: Sequence[Section]) -> None:
    """Write the page to `path`. `lead` is (name, value, words) of what stands first."""
    # Escaped, as names and texts come from the data, which nobody has looked through.
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["base64"] = lambda file: base64.b64encode(file.read_bytes()).decode()
    text = environment.get_template("page.html").render(title=title, lead=lead, sections=sections)
    path.write_text(text, encoding="utf-8", errors="replace")
