"""Tables with a number to predict: CSV, JSON Lines or Parquet, with numbers, categories and gaps.

`root/{train,val,test}.csv`, or one `root/data.csv` that is split by a hash of each row, see
reading/tables.py. Means, medians and categories are learnt from the training split alone and reach
the module by themselves, so that a checkpoint and the ONNX file hold them. Point data.root
in configs/default.yaml at your own folder and name its columns there; nothing here needs to change.
"""

import math
import statistics
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from ..practices.errors import UserError
from ..practices.loaders import BaseDataModule, MapDataset, Split
from ..reading.tables import SPLITS, Row, Table, read_split, read_table, shared_strings, split_of, write_tables

DEMO = Path("data/diabetes")
MISSING = frozenset(["", "na", "n/a", "nan", "null", "none", "?"])  # in lower case


def write_diabetes(root: Path) -> None:
    """Write scikit-learn's diabetes data: 442 patients, 10 columns, progression a year later (25 to 346).

    Source: B. Efron, T. Hastie, I. Johnstone, R. Tibshirani, Least Angle Regression, Annals of Statistics
    32, 2004, 407 to 499; as shipped with scikit-learn (BSD-3-Clause), which states no other licence.
    """
    from sklearn.datasets import load_diabetes

    data = load_diabetes(scaled=False)
    splits: dict[str, list[Row]] = {split: [] for split in SPLITS}
    for number, (values, target) in enumerate(zip(data.data.tolist(), data.target.tolist(), strict=True)):
        name = f"patient-{number:03d}"
        cells = {column: f"{value:g}" for column, value in zip(data.feature_names, values, strict=True)}
        splits[split_of(name)].append({"patient": name, **cells, "progression": f"{target:g}"})
    write_tables(root, splits)


def is_missing(cell: str) -> bool:
    """Return whether `cell` says that nothing is known."""
    return cell.strip().lower() in MISSING


def parse_numbers(table: Table, name: str, argument: str) -> list[float]:
    """Return column `name` as numbers, NaN where missing.

    Raises:
        UserError: A cell is no finite number; the sentence names it.
    """
    numbers = []
    for index, cell in enumerate(table.column(name, argument)):
        try:
            number = math.nan if is_missing(cell) else float(cell)
        except ValueError:
            number = math.inf
        if math.isinf(number):
            advice = "mend it, or list the column in data.categorical or data.ignored"
            raise UserError(f"{name} in {table.where(index)} must be a number or empty, but is {cell!r}; {advice}.")
        numbers.append(number)
    return numbers


class RowDataset:
    """Samples of a table: `{"numbers", "missing", "categories", "target", "id"}`.

    `numbers` is float32 of shape (numbers,) in its own units, 0 where `missing` (bool, same shape) says so: the
    module imputes and scales, so that an exported model does too. `categories` is int64 of shape (categories,),
    0 for a value unseen in training, `target` a float32 scalar, `row` the row's lasting name.
    """

    def __init__(self, table: Table, numbers: list[str], categories: dict[str, list[str]], target: list[float]) -> None:
        """Read the columns called `numbers` and those of `categories`, whose known values are given."""
        rows = len(table.rows)
        columns = [parse_numbers(table, name, "data.root") for name in numbers]
        values = torch.tensor(columns, dtype=torch.float32).reshape(len(numbers), rows).T.contiguous()
        self.missing = values.isnan()
        self.numbers = values.nan_to_num()
        codes = [encode(table.column(name, "data.categorical"), known) for name, known in categories.items()]
        self.categories = torch.tensor(codes, dtype=torch.int64).reshape(len(codes), rows).T.contiguous()
        self.target = torch.tensor(target, dtype=torch.float32)
        self.ids = shared_strings(table.ids)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return sample `index`."""
        inputs = {"numbers": self.numbers[index], "missing": self.missing[index], "categories": self.categories[index]}
        return {**inputs, "target": self.target[index], "id": self.ids[index]}


def encode(cells: list[str], known: list[str]) -> list[int]:
    """Return for each cell its place in `known`, from 1; 0 where training had no such value."""
    places = {value: place for place, value in enumerate(known, start=1)}
    return [places.get("" if is_missing(cell) else cell.strip(), 0) for cell in cells]


class TableData(BaseDataModule):
    """Rows of a table, with a number to predict.

    Args:
        root: Folder with the tables, see above. The demo's own is written on first use.
        target: Column to predict; every row to learn from or to measure with needs it.
        categorical: Columns of names, embedded. Every other column is read as a number.
        ignored: Columns that are not used, such as what is known only afterwards.
        id_column: Column that names rows, by which they are split; null takes all cells.
        predict_file: Table to predict, its target not needed; the test split if null.
        batch_size: Rows a step and device.
        num_workers: Processes that load data; 0 is fastest for tables, which lie in memory.
        pin_memory: Page-locked memory for faster copies to a GPU; null turns it on where there is one.
    """

    provides = ("numbers", "categories", "target_statistics")
    fitted = provides

    def __init__(
        self,
        root: str = str(DEMO),
        target: str = "progression",
        categorical: list[str] | None = None,
        ignored: list[str] | None = None,
        id_column: str | None = None,
        predict_file: str | None = None,
        batch_size: int = 64,
        num_workers: int | None = 0,
        pin_memory: bool | None = None,
    ) -> None:
        super().__init__(batch_size, num_workers, pin_memory)
        self.root, self.target, self.categorical = Path(root), target, categorical or []
        self.unused = {target, *self.categorical, *(ignored or []), *([id_column] if id_column else [])}
        self.id_columns = [id_column] if id_column else []
        self.predict_file = predict_file
        self._tables: dict[Split, Table] = {}

    def prepare_data(self) -> None:
        """Write the demo's tables, once. Your own data only has to lie in `root`."""
        if self.root == DEMO and not self.root.exists():
            write_diabetes(self.root)

    def table(self, split: Split) -> Table:
        """Return the rows of `split`, read once."""
        if split not in self._tables:
            self.prepare_data()
            self._tables[split] = read_split(self.root, split, self.id_columns)
        return self._tables[split]

    @property
    def numbers(self) -> dict[str, list[float]]:
        """Median, mean, standard deviation and missing share of each number column of the training split."""
        table = self.table("train")
        names = [name for name in table.rows[0] if name not in self.unused]
        return {name: self._statistics(parse_numbers(table, name, "data.root"), name) for name in names}

    def _statistics(self, column: list[float], name: str) -> list[float]:
        present = [number for number in column if not math.isnan(number)]
        if not present:
            raise UserError(f"column {name} of the training split is empty; fill it or list it in data.ignored.")
        missing = 1 - len(present) / len(column)
        return [statistics.median(present), statistics.fmean(present), statistics.pstdev(present) or 1.0, missing]

    @property
    def categories(self) -> dict[str, list[str]]:
        """The values that each category column has in the training split, sorted; "" stands for missing."""
        table, known = self.table("train"), {}
        for name in self.categorical:
            cells = table.column(name, "data.categorical")
            known[name] = sorted({"" if is_missing(cell) else cell.strip() for cell in cells})
        return known

    @property
    def target_statistics(self) -> list[float]:
        """Mean and standard deviation of the target in the training split."""
        target = self._target(self.table("train"))
        return [statistics.fmean(target), statistics.pstdev(target) or 1.0]

    def _target(self, table: Table) -> list[float]:
        target = parse_numbers(table, self.target, "data.target")
        for index, number in enumerate(target):
            if math.isnan(number):
                raise UserError(f"{self.target} is missing in {table.where(index)}; fill it or remove the row.")
        return target

    def sample_ids(self, split: Split) -> list[str]:
        """Return the name of every row of `split`."""
        return self.table(split).ids

    def make_dataset(self, split: Split) -> MapDataset:
        """Return the rows of `split`."""
        table = self.table(split)
        return self._dataset(table, self._target(table))

    def _dataset(self, table: Table, target: list[float]) -> RowDataset:
        return RowDataset(table, list(self.fact("numbers")), self.fact("categories"), target)

    def predict_dataloader(self) -> DataLoader[dict[str, Any]]:
        """Return the loader over `predict_file`, whose targets are 0, or over the test split."""
        if self.predict_file is None:
            return self.loader("test")
        table = read_table(Path(self.predict_file), self.id_columns)
        return self.loader("test", self._dataset(table, [0.0] * len(table.rows)))
