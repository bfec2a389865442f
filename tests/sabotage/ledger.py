"""Reading docs/practices.md, the ledger: one Markdown table a group, one row a practice."""

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/practices.md"
COLUMNS = ["#", "id", "level", "practice today", "held in", "proved by"]
LEVELS = ["doc", "guard", "code"]  # from the lowest
QUOTED = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Row:
    """One practice; `places` are file::name in the generated project, `tests` file::test there."""

    number: int
    name: str
    level: str
    practice: str
    places: tuple[str, ...]
    tests: tuple[str, ...]
    waits_for: str  # "" where it is held

    @property
    def held(self) -> bool:
        """Return whether a test proves it; rows of level doc need none."""
        return self.level != "doc" and not self.waits_for


def cells(line: str) -> list[str]:
    """Return the cells of one line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def read(text: str | None = None) -> list[Row]:
    """Return every row of the page, in its order."""
    rows = []
    for line in (PAGE.read_text(encoding="utf-8") if text is None else text).splitlines():
        if not re.match(r"\| \d+ \|", line):
            continue
        found = cells(line)
        assert len(found) == len(COLUMNS), f"{len(found)} cells instead of {len(COLUMNS)}: {line}"
        number, name, level, practice, held, proved = found
        waits_for = held.removeprefix("open:").strip() if held.startswith("open:") else ""
        places = () if waits_for else tuple(QUOTED.findall(held))
        rows.append(
            Row(int(number), name.strip("`"), level, practice, places, tuple(QUOTED.findall(proved)), waits_for)
        )
    return rows
