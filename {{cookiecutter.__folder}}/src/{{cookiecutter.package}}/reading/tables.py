"""Rows of CSV, JSON Lines or Parquet files, split for ever by what they say.

    root/{train,val,test}.csv     splits as you made them
    root/data.csv                 split here, by a hash of each row's id or content

A val or test file that is missing is taken out of train by the same hash. Every cell is text, an
empty one is "". Parquet needs pyarrow.
"""

import csv
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..practices.errors import UserError
from ..practices.loaders import Split

Row = dict[str, str]
SPLITS: tuple[Split, ...] = ("train", "val", "test")


@dataclass(frozen=True)
class Table:
    """Rows of one file; `ids` name them for ever, `numbers` are their places in the file, from 1."""

    path: Path
    rows: list[Row]
    ids: list[str]
    numbers: list[int]

    def column(self, name: str, argument: str) -> list[str]:
        """Return the cells of column `name`, which the configuration's `argument` gives."""
        if name not in self.rows[0]:
            columns = ", ".join(self.rows[0])
            raise UserError(f"{argument} names column {name!r}, but {self.path} has only {columns}; mend either.")
        return [row[name] for row in self.rows]

    def where(self, index: int) -> str:
        """Return the words for row `index`."""
        return f"row {self.numbers[index]} of {self.path}"


def split_of(name: str, val_share: float = 0.15, test_share: float = 0.15) -> Split:
    """Return the split that a row's name belongs to, for ever: adding rows moves no other row."""
    position = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 2**32
    return "test" if position < test_share else "val" if position < test_share + val_share else "train"


def read_split(root: Path, split: Split, id_columns: Sequence[str] = ()) -> Table:
    """Return the rows of `split` below `root`, named by `id_columns`, or by all their cells.

    Raises:
        UserError: The files are missing, unreadable, or leave the split without a row.
    """
    base = _find(root, "train") or _find(root, "data")
    if base is None:
        raise UserError(f"data.root must be a folder with train.csv or data.csv, but {root} has neither; add one.")
    given = {s: _find(root, s) if base.stem == "train" else None for s in SPLITS[1:]}
    own = given.get(split)
    table = read_table(own or base, id_columns)
    if own is None:  # only what has no file is carved out of train
        carved = [s for s in SPLITS[1:] if given[s] is None]
        names = [name.rsplit("#", 1)[0] for name in table.ids]  # equal rows stay together
        splits = [s if (s := split_of(name)) in carved else "train" for name in names]
        kept = [i for i, s in enumerate(splits) if s == split]
        picked = ([values[i] for i in kept] for values in (table.rows, table.ids, table.numbers))
        table = Table(table.path, *picked)  # type: ignore[arg-type]
    if not table.rows:
        raise UserError(f"the {split} split of {root} is empty; add rows or a file {root / split}.csv.")
    return table


def read_table(path: Path, id_columns: Sequence[str] = ()) -> Table:
    """Return all rows of `path`; the same row a second time is named `...#2`.

    Raises:
        UserError: The file is missing, empty, no UTF-8, or malformed; the sentence says where.
    """
    readers = {".csv": _read_csv, ".jsonl": _read_json_lines, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise UserError(f"{path} must be one of {', '.join(readers)}; save the table as such.")
    if not path.is_file():
        raise UserError(f"{path} does not exist; give the path of a table.")
    try:
        rows = readers[path.suffix](path)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} must be UTF-8, but byte {error.start} is not; save it as UTF-8.") from error
    if not rows:
        raise UserError(f"{path} holds no row; give it a header with the columns' names, and rows.")
    table = Table(path, rows, [], list(range(1, len(rows) + 1)))
    columns = [table.column(name, "data.id_column or what stands in for it") for name in id_columns or rows[0]]
    seen: Counter[str] = Counter()
    for cells in zip(*columns, strict=True):
        name = cells[0] if len(id_columns) == 1 else hashlib.sha256(json.dumps(cells).encode()).hexdigest()[:16]
        seen[name] += 1
        table.ids.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return table


def shared_strings(values: list[str]) -> Any:
    """Return `values` as one array, which worker processes share: a list is copied item by item as it is read."""
    return np.array(values, dtype=np.dtypes.StringDType())


def write_tables(root: Path, splits: dict[str, list[Row]]) -> None:
    """Write `root/<split>.csv` for every split: the whole folder or nothing."""
    temporary = root.with_name(f".{root.name}-{os.getpid()}")
    temporary.mkdir(parents=True)
    for split, rows in splits.items():
        with (temporary / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    try:
        temporary.rename(root)
    except OSError:  # another rank may have been faster
        if not root.is_dir():
            raise


def _find(root: Path, stem: str) -> Path | None:
    """Return the one table called `stem` in `root`, or None."""
    found = [path for suffix in (".csv", ".jsonl", ".parquet") if (path := root / f"{stem}{suffix}").is_file()]
    if len(found) > 1:
        raise UserError(f"{root} holds both {found[0].name} and {found[1].name}; remove the one not meant.")
    return found[0] if found else None


def _read_csv(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8-sig") as file:  # Excel's mark at the start is no part of a name
        reader = csv.reader(file, strict=True)
        try:
            header, *lines = [line for line in reader if line] or [[]]
        except csv.Error as error:
            raise UserError(f"line {reader.line_num} of {path} is no CSV ({error}); mend its quotes.") from error
    _require_distinct(header, path)
    for number, line in enumerate(lines, start=1):
        if len(line) != len(header):
            raise UserError(f"row {number} of {path} has {len(line)} cells, but the header {len(header)}; mend it.")
    return [dict(zip(header, line, strict=True)) for line in lines]


def _require_distinct(header: list[str], path: Path) -> None:
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise UserError(f"{path} has the column {twice[0]!r} twice; rename one.")


def _read_json_lines(path: Path) -> list[Row]:
    objects = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        try:
            value = json.loads(line) if line.strip() else None
        except json.JSONDecodeError:
            value = False
        if not isinstance(value, dict | None) or any(isinstance(v, list | dict) for v in (value or {}).values()):
            raise UserError(f"line {number} of {path} must be one JSON object of plain values; mend it.")
        objects += [value] if value else []
    return _as_text(objects)


def _read_parquet(path: Path) -> list[Row]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise UserError(f"{path} needs pyarrow: pip install pyarrow, or save the table as CSV.") from error
    return _as_text(parquet.read_table(path).to_pylist())


def _as_text(objects: Iterable[dict[str, Any]]) -> list[Row]:
    """Return `objects` with one set of columns and text for cells, as a CSV file has them."""
    objects = list(objects)
    columns = list(dict.fromkeys(name for value in objects for name in value))
    return [{c: "" if o.get(c) is None else str(o[c]) for c in columns} for o in objects]
