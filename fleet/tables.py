"""Show a rollout or a status while it runs and afterwards: on the screen, as JSON, as Markdown."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fleet.errors import mask
from fleet.rollout import GREEN, LEFT_OUT, Outcome
from fleet.status import Standing

Rows = list[dict[str, Any]]


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[Outcome | Standing], None]]:
    """Show a bar on the standard error output; call what is given after each project."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)

        def done(item: Outcome | Standing) -> None:
            bar.update(task, advance=1, description=f"{title} {escape(item.name)}")

        yield done


def show(rows: Rows, columns: dict[str, str], title: str) -> None:
    """Print a table of the columns (key to heading)."""
    table = Table(title=title, title_justify="left")
    for heading in columns.values():
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(escape(_cell(row[key])) for key in columns))
    Console(width=None if Console().is_terminal else 160).print(table)


ROLLOUT = {
    "name": "Project",
    "status": "Status",
    "from": "From",
    "to": "To",
    "checks_before": "Before",
    "checks_after": "After",
    "conflicts": "Conflicts",
    "message": "",
}
STATUS = {
    "name": "Project",
    "version": "Version",
    "behind_by": "Behind by",
    "drift": "Drift",
    "conflicts": "Conflicts",
    "branch": "Branch waiting",
    "message": "",
}


def _cell(value: Any) -> str:
    return mask(", ".join(value) if isinstance(value, list) else str(value))


def write_report(stem: Path, version: str, outcomes: list[Outcome]) -> None:
    """Write the report of a rollout as STEM.json and STEM.md."""
    rows = [outcome.document() for outcome in outcomes]
    document = {"to": version, "green": sum(o.status in GREEN for o in outcomes), "projects": rows}
    stem.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=2, ensure_ascii=False)
    stem.with_name(f"{stem.name}.json").write_text(mask(text) + "\n", encoding="utf-8")
    lines = [f"# Rollout of {version}", "", summary(outcomes), "", *_markdown_table(rows)]
    for outcome in outcomes:
        lines += _details(outcome)
    stem.with_name(f"{stem.name}.md").write_text(mask("\n".join(lines)) + "\n", encoding="utf-8")


def summary(outcomes: list[Outcome]) -> str:
    """Return one sentence about a rollout."""
    green = sum(outcome.status in GREEN for outcome in outcomes)
    left = sum(outcome.status in LEFT_OUT for outcome in outcomes)
    need = len(outcomes) - green - left
    return f"{len(outcomes)} project(s): {green} green, {left} left out, {need} need someone."


def _markdown_table(rows: Rows) -> list[str]:
    heads = list(ROLLOUT.values())
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for row in rows:
        cells = [_cell(row[key]).replace("|", "\\|").replace("\n", " ") for key in ROLLOUT]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _details(outcome: Outcome) -> list[str]:
    lines = [f"- {note}" for note in outcome.notes]
    lines += [f"- To do for {tag}: {' '.join(text.split())}" for tag, text in outcome.todo.items()]
    if outcome.log:
        lines += ["", *(f"    {line}" for line in outcome.log.splitlines())]
    return ["", f"## {outcome.name}", "", *lines] if lines else []
