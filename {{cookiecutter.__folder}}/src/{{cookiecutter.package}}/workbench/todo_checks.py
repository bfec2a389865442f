"""What proves each item of TODO.md, by its id; read from the project's files, nothing of it is run.

A check is given the project and what stands between backticks in the item's proof, and returns what is missing, or
nothing when the item is done. A new item with a proof of its own is a section in TODO.md and a line in CHECKS.
"""

import csv
import functools
import json
import math
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where it is there
Answer = str | None


class Project:
    """A project's folder, and what checks ask of it."""

    def __init__(self, folder: Path) -> None:
        """Look at `folder`."""
        self.folder = folder

    def text(self, name: str) -> str:
        """Return the text of a file, empty where there is none."""
        path = self.folder / name
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""

    @functools.cached_property
    def config(self) -> Any:
        """The default configuration."""
        return yaml.load(self.text("configs/default.yaml"), LOADER)

    def value(self, key: str, tree: Any = None) -> Any:
        """Return the configuration's value of a dotted key (or another tree's), None where it has none."""
        tree = self.config if tree is None else tree
        for name in key.split("."):
            tree = tree.get(name) if isinstance(tree, dict) else None
        return tree

    @functools.cached_property
    def runs(self) -> list[tuple[Path, dict[str, Any]]]:
        """The finished runs on the data that the configuration names, oldest first, with their records."""
        paths = sorted(path for path in self.folder.glob("runs/*/record.json") if not path.parent.is_symlink())
        records = [(path.parent, parse(path.read_text(encoding="utf-8", errors="replace"))) for path in paths]
        wanted = {"status": "finished", "config.data.init_args.root": self.value("data.init_args.root")}
        return [one for one in records if all(self.value(key, one[1]) == value for key, value in wanted.items())]


def parse(text: str) -> Any:
    """Return what JSON says, nothing where it is damaged: a run that was killed must not hide the others."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def number(value: Any) -> float | None:
    """Return a finite number; YAML reads 1e-3 as text, and true is none."""
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def author(project: Project, placeholder: str, *files: str) -> Answer:
    """Nobody's name is left."""
    left = [name for name in files if placeholder in project.text(name)]
    return f"{placeholder} still stands in {' and '.join(left)}" if left else None


def changed(project: Project, key: str, demo: str) -> Answer:
    """A value is no longer the demo's."""
    return f"{key} is still the demo's, {demo}" if str(project.value(key)).lower() == demo.lower() else None


def data(project: Project, key: str, demo: str, *patterns: str) -> Answer:
    """The data is one's own and in the layout that is read, below a folder of splits or not."""
    if still := changed(project, key, demo):
        return still
    folder = project.folder / str(project.value(key))
    if not folder.is_dir():
        return f"{key} is {project.value(key)}, which is no folder"
    paths = [(p, pattern) for base in (folder, folder / "train") for pattern in patterns for p in base.glob(pattern)]
    found = any(fnmatch(path.stem, Path(pattern).stem) for path, pattern in paths)  # data.csv.bak is no data
    return None if found else f"{project.value(key)} holds no {' and no '.join(patterns)}"


def columns(project: Project, root_key: str, demo: str, *keys: str) -> Answer:
    """One's own table has the columns that the configuration names."""
    if still := data(project, root_key, demo, "train.*", "data.*"):
        return still
    folder = project.folder / str(project.value(root_key))
    names = [f"{stem}{kind}" for stem in ("train", "data") for kind in (".csv", ".jsonl", ".parquet")]
    table = next((folder / name for name in names if (folder / name).is_file()), None)
    if table is None:
        return f"{project.value(root_key)} holds none of {', '.join(names)}"
    if table.suffix == ".parquet":  # only a run can read it
        return has_file(project, "record.json")
    with table.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        lines = (line for line in file if line.strip())
        header = list(parse(next(lines, "")) or []) if table.suffix == ".jsonl" else next(csv.reader(lines), [])
    values = [project.value(key) for key in keys]
    wanted = [name for value in values for name in (value if isinstance(value, list) else [value]) if name]
    missing = ", ".join(str(name) for name in wanted if str(name) not in header)
    return f"{table.name} has no column {missing}; it has {', '.join(header)}" if missing else None


def target(project: Project, key: str) -> Answer:
    """A target is stated."""
    value = project.value(key)
    return f"{key} is {value}, not a number" if number(value) is None else None


def has_file(project: Project, name: str) -> Answer:
    """A finished run on this data has left a file."""
    there = any((run / name).is_file() for run, _ in project.runs)
    return None if there else f"no finished run on this data has a {name}"


def result(project: Project, metric_key: str, target_key: str) -> Answer:
    """The best run reaches the target."""
    metric, wanted = project.value(metric_key), number(project.value(target_key))
    found = [(record["best"][metric], run.name) for run, record in project.runs if metric in record.get("best", {})]
    if not found or wanted is None:
        return f"{metric} of a finished run on this data and {target_key} are needed for a comparison"
    low = project.value("monitor.mode") == "min"
    value, run = (min if low else max)(found)
    return None if (value <= wanted if low else value >= wanted) else f"{metric} of {run} is {value:.4g}, not {wanted}"


def card(project: Project, name: str) -> Answer:
    """Nothing in the model card is left to write."""
    text = project.text(name)
    left = text.count("TODO(you):")
    return f"{name} has {left} marks left, or is not written yet" if left or not text else None


CHECKS: dict[str, Callable[..., Answer]] = {
    **dict.fromkeys(("augmentation", "metric", "loss", "wandb", "network"), changed),
    **dict.fromkeys(("baseline", "measured", "tried"), has_file),
    **{"author": author, "data": data, "columns": columns, "target": target, "result": result, "card": card},
}
# What the projects of some answers lack; any other item is missed where TODO.md has it no more.
OF_SOME = {"columns", "augmentation", "loss", "wandb"}
