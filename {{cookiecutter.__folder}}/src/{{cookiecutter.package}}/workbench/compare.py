"""What differs between runs: `compare RUN RUN...` prints it, `--html FILE` writes it as a page.

Read from the runs' record.json alone, so it also works for runs of a machine that is gone.
"""

import argparse
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..practices.errors import UserError

SECTIONS = {
    "results": ("status", "best", "epochs", "steps", "samples_per_second", "wall_seconds", "resumes"),
    "data": ("data",),
    "versions": ("versions", "git", "template", "hardware", "packages"),
    "configuration": ("config",),
}
# Of the configuration: where a run lies says nothing about it.
PLACES = ("trainer.default_root_dir", "trainer.logger.init_args.save_dir", "trainer.logger.init_args.id")
Rows = list[tuple[str, list[str]]]


def main(arguments: Sequence[str]) -> None:
    """Compare the runs that `arguments` name."""
    parser = argparse.ArgumentParser(prog="compare", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", help="folders of runs, or the file of a group of runs, runs/<group>.json")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write it as a page")
    options = parser.parse_args(arguments)
    runs = [run for name in options.runs for run in expand(Path(name))]
    if len(runs) < 2:
        raise UserError("compare needs two runs or more; give their folders, such as runs/latest.")
    records = [load(run) for run in runs]
    names = [record["run"] for record in records]
    sections = {title: rows(records, keys) for title, keys in SECTIONS.items()}
    print("\n".join(text(names, sections)))
    if options.html:
        options.html.write_text(page(names, sections), encoding="utf-8")
        print(f"\nWritten to {options.html}")


def expand(path: Path) -> list[Path]:
    """Return the runs of the group whose file `path` is, or `path` itself."""
    if path.suffix != ".json":
        return [path]
    return [path.parent / run for run in json.loads(path.read_text(encoding="utf-8"))["runs"]]


def load(run: Path) -> dict[str, Any]:
    """Return the record of `run`.

    Raises:
        UserError: There is none.
    """
    path = run / "record.json"
    if not path.is_file():
        raise UserError(f"{path} does not exist; give the folder of a run that was started with fit.")
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    record["resumes"] = len(record.get("resumes", []))
    return record


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Return the values of nested dicts by dotted name."""
    if not isinstance(value, dict):
        return {name: value}
    return {k: v for key, one in value.items() for k, v in flat(one, f"{name}.{key}".lstrip(".")).items()}


def rows(records: list[dict[str, Any]], keys: tuple[str, ...]) -> Rows:
    """Return (name, a value for each record) of what differs under `keys`."""
    flats = [{k: v for key in keys for k, v in flat(record.get(key), key).items()} for record in records]
    names = dict.fromkeys(name for one in flats for name in one)
    table = [(name.removeprefix("config."), [show(one.get(name)) for one in flats]) for name in names]
    return [(name, values) for name, values in table if len(set(values)) > 1 and name not in PLACES]


def show(value: Any) -> str:
    """Return a value as a reader wants it: few digits, nothing for nothing."""
    if isinstance(value, float):
        return f"{value:.5g}"
    return "-" if value is None else str(value)


def text(names: list[str], sections: dict[str, Rows]) -> list[str]:
    """Return the lines of a table; long values are cut."""
    width = max([len(name) for rows in sections.values() for name, _ in rows] + [12])
    column = max(14, min(32, max(map(len, names))))
    lines = [" ".join([" " * width, *(name[-column:].rjust(column) for name in names)])]
    for title, found in sections.items():
        lines += ["", title + ("" if found else ": the same")]
        lines += [" ".join([name.ljust(width), *(v[-column:].rjust(column) for v in values)]) for name, values in found]
    return lines


STYLE = (
    "body{font:15px system-ui;margin:2em}table{border-collapse:collapse}td,th{padding:.3em .8em;text-align:right;"
    "border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}"
)


def page(names: list[str], sections: dict[str, Rows]) -> str:
    """Return the table as one HTML file that needs no other."""

    def row(cells: Sequence[str], tag: str = "td") -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = [row(["", *names], "th")]
    for title, found in sections.items():
        body.append(row([title if found else f"{title}: the same"], "th"))
        body += [row([name, *values]) for name, values in found]
    table = "\n".join(body)
    return f'<!doctype html><meta charset="utf-8"><title>Runs</title><style>{STYLE}</style><table>{table}</table>\n'
