"""What differs between runs: `compare RUN RUN...` prints it, `--html` writes it as a page, with their curves.

Read from the runs' record.json and metrics.csv alone, so it also works for runs of a machine that is gone.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..mistakes import Parser
from ..practices.errors import UserError

SECTIONS = {
    "results": ("status", "best", "epochs", "steps", "samples_per_second", "wall_seconds", "resumes"),
    "data": ("data",),
    "versions": ("versions", "git", "template", "hardware", "packages"),
    "configuration": ("config",),
}
# Of the configuration: where a run lies says nothing about it.
PLACES = ("trainer.default_root_dir", "trainer.logger.init_args.save_dir", "trainer.logger.init_args.id")
PAGE, CHARTS = Path("runs/compare.html"), 6
Rows = list[tuple[str, list[str]]]


def main(arguments: Sequence[str]) -> None:
    """Compare the runs that `arguments` name."""
    parser = Parser(prog="compare", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", help="folders of runs, or the file of a group of runs, runs/<group>.json")
    about = f"also write it as a page, by default {PAGE}"
    parser.add_argument("--html", nargs="?", type=Path, const=PAGE, metavar="FILE", help=about)
    options = parser.parse_args(arguments)
    if options.html and options.html.is_dir():
        raise UserError(f"--html needs the name of a file, but {options.html} is a folder; name the runs first.")
    if options.html and not options.html.suffix:  # the pictures' folder has the name without it
        options.html = options.html.with_suffix(".html")
    runs = [run for name in options.runs for run in expand(Path(name))]
    if len(runs) < 2:
        raise UserError("compare needs two runs or more; give their folders, such as runs/latest.")
    records = [load(run) for run in runs]
    names = [record["run"] for record in records]
    names = names if len(set(names)) == len(names) else [str(run) for run in runs]
    sections = {title: rows(records, keys) for title, keys in SECTIONS.items()}
    print("\n".join(text(names, sections)))
    if options.html:
        page(options.html, runs, names, sections)
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


def page(path: Path, runs: list[Path], names: list[str], sections: dict[str, Rows]) -> None:
    """Write what differs to `path`, with the runs' curves laid over each other, whose pictures go beside it."""
    from .report.charts import lines
    from .report.page import Picture, Section, Table, write
    from .report.verdict import curve, judge, read

    metrics = [read(run) for run in runs]
    columns = dict.fromkeys(name for found in metrics for row in found[:1] for name in row if name.startswith("val/"))
    pictures: list[Picture] = []
    for name in list(dict.fromkeys(["train/loss", "val/loss", *columns]))[:CHARTS]:
        curves = {label: curve(found, name) for label, found in zip(names, metrics, strict=True)}
        if shown := {label: values for label, values in curves.items() if values}:
            file = path.with_suffix("") / f"curve-{len(pictures)}.png"
            pictures.append(lines(file, shown, "epoch", name, ""))
    verdicts = [[label, *judge(found)] for label, found in zip(names, metrics, strict=True)]
    tables = [
        Section(title.capitalize(), "" if found else "The same.", Table(["", *names], [[n, *v] for n, v in found]))
        for title, found in sections.items()
    ]
    course = Section("Learning curves", "", Table(["run", "verdict", ""], verdicts, prose=True), pictures)
    write(path, f"{len(runs)} runs", [], [course, *tables])
