"""Texts with a label: CSV, JSON Lines or Parquet, with a column of texts and one of labels.

`root/{train,val,test}.csv`, or one `root/data.csv` that is split by a hash of each text, see
reading/tables.py. The vocabulary is learnt from the training split alone and reaches the module by
itself, so that a checkpoint and the ONNX file hold it. Point data.root in
configs/default.yaml at your own folder and name its two columns there; nothing here needs to change.
"""

import importlib
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..practices.errors import UserError
from ..practices.loaders import BaseDataModule, EpochSampler, MapDataset, Split
from ..reading.sequences import BucketSampler, pad
from ..reading.tables import SPLITS, Row, Table, read_split, read_table, shared_strings, split_of, write_tables

DEMO = Path("data/surnames")
LANGUAGES = {
    "Croatian": "hr_HR", "Czech": "cs_CZ", "Dutch": "nl_NL", "English": "en_GB", "Estonian": "et_EE",
    "Finnish": "fi_FI", "French": "fr_FR", "German": "de_DE", "Hungarian": "hu_HU", "Icelandic": "is_IS",
    "Irish": "ga_IE", "Italian": "it_IT", "Slovenian": "sl_SI", "Spanish": "es_ES", "Swedish": "sv_SE",
}  # fmt: skip
Tokenizer = Literal["characters", "bytes"]
UNKNOWN = 1  # 0 is padding; the vocabulary starts at 2


def write_surnames(root: Path) -> None:
    """Write about 11,000 surnames of 15 languages from faker; those that several languages have are left out.

    Source: the lists in faker's person providers (github.com/joke2k/faker), licence MIT. The lists change with
    faker's version, so pyproject.toml fixes it.
    """
    languages: dict[str, set[str]] = {}
    for language, locale in LANGUAGES.items():
        lists = vars(importlib.import_module(f"faker.providers.person.{locale}").Provider)
        languages[language] = {
            str(n) for name, values in lists.items() if name.startswith("last_names") for n in values
        }
    counts = Counter(name for names in languages.values() for name in names)
    splits: dict[str, list[Row]] = {split: [] for split in SPLITS}
    for language, names in languages.items():
        for name in sorted(names):
            if counts[name] == 1:
                splits[split_of(name)].append({"surname": name, "language": language})
    write_tables(root, splits)


def units(text: str, tokenizer: Tokenizer) -> list[str]:
    """Return what `text` is made of: composed characters; or bytes of UTF-8, each as the character of its number."""
    return list(text.encode().decode("latin-1") if tokenizer == "bytes" else unicodedata.normalize("NFC", text))


class TextDataset:
    """Samples of texts: `{"tokens", "label", "id", "text"}`.

    `tokens` is int64 of shape (length,), never empty: 1 for a unit that the vocabulary lacks, else its place
    there plus 2. `label` is an int64 scalar, `row` the row's lasting name.
    """

    def __init__(self, texts: list[str], labels: Tensor, ids: list[str], encode: "Encoder") -> None:
        """Encode `texts` once, into one tensor that workers share, with `labels` (int64, one a text)."""
        encoded = [encode(text) for text in texts]
        self.texts, self.labels, self.ids = shared_strings(texts), labels, shared_strings(ids)
        self.lengths = torch.tensor([len(tokens) for tokens in encoded])
        self.tokens = torch.tensor([token for tokens in encoded for token in tokens])
        self.starts = self.lengths.cumsum(0) - self.lengths

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return sample `index`."""
        tokens = self.tokens[self.starts[index] : self.starts[index] + self.lengths[index]]
        return {"tokens": tokens, "label": self.labels[index], "id": self.ids[index], "text": self.texts[index]}


class Encoder:
    """Turn a text into token indices by a vocabulary."""

    def __init__(self, vocabulary: list[str], tokenizer: Tokenizer, max_length: int) -> None:
        """Cut texts after `max_length` tokens."""
        self.places = {unit: place for place, unit in enumerate(vocabulary, start=UNKNOWN + 1)}
        self.tokenizer, self.max_length = tokenizer, max_length

    def __call__(self, text: str) -> list[int]:
        """Return the indices of `text`; an empty text is one unknown unit, so that no row is only padding."""
        return [self.places.get(u, UNKNOWN) for u in units(text, self.tokenizer)[: self.max_length]] or [UNKNOWN]


class TextData(BaseDataModule):
    """Texts in a column of a table, with their labels in another.

    Args:
        root: Folder with the tables, see above. The demo's own is written on first use.
        text_column: Column of the texts.
        label_column: Column of the labels; every row to learn from or to measure with needs one.
        id_column: Column that names rows, by which they are split; null takes the text.
        tokenizer: characters, learnt from the training split; or bytes of UTF-8, all 256 known beforehand.
        min_count: Times that training must show a character for it to be known; rarer ones train "unknown".
        max_length: Tokens after which a text is cut.
        bucketing: Whether training batches hold texts of like length, for less padding.
        predict_file: Table to predict, labels not needed; the test split if null.
        batch_size: Texts a step and device.
        num_workers: Processes that load data; 0 is fastest for short texts, which lie in memory.
        pin_memory: Page-locked memory for faster copies to a GPU; null turns it on where there is one.
        weighted_sampling: Draw training texts so that all labels come equally often.
    """

    provides = ("class_names", "vocabulary", "tokenizer")
    fitted = ("vocabulary", "tokenizer")
    collate = staticmethod(pad)

    def __init__(
        self,
        root: str = str(DEMO),
        text_column: str = "text",
        label_column: str = "label",
        id_column: str | None = None,
        tokenizer: Tokenizer = "characters",
        min_count: int = 2,
        max_length: int = 256,
        bucketing: bool = True,
        predict_file: str | None = None,
        batch_size: int = 64,
        num_workers: int | None = 0,
        pin_memory: bool | None = None,
        weighted_sampling: bool = False,
    ) -> None:
        super().__init__(batch_size, num_workers, pin_memory, weighted_sampling)
        self.root, self.text_column, self.label_column = Path(root), text_column, label_column
        self.id_columns = [id_column or text_column]
        self.tokenizer, self.min_count, self.max_length = tokenizer, min_count, max_length
        self.bucketing, self.predict_file = bucketing, predict_file
        self._tables: dict[Split, Table] = {}

    def prepare_data(self) -> None:
        """Write the demo's tables, once. Your own data only has to lie in `root`."""
        if self.root == DEMO and not self.root.exists():
            write_surnames(self.root)

    def table(self, split: Split) -> Table:
        """Return the rows of `split`, read once."""
        if split not in self._tables:
            self.prepare_data()
            self._tables[split] = read_split(self.root, split, self.id_columns)
        return self._tables[split]

    @property
    def class_names(self) -> list[str]:
        """The labels of the training split, sorted."""
        table = self.table("train")
        labels = table.column(self.label_column, "data.label_column")
        if "" in labels:
            raise UserError(
                f"{self.label_column} is missing in {table.where(labels.index(''))}; fill it or drop the row."
            )
        if len(set(labels)) < 2:
            raise UserError(f"{table.path} has only the label {labels[0]!r}; add rows of another.")
        return sorted(set(labels))

    @property
    def vocabulary(self) -> list[str]:
        """The units that the training split shows often enough, sorted; of bytes all."""
        if self.tokenizer == "bytes":
            return [chr(number) for number in range(256)]
        texts = self.table("train").column(self.text_column, "data.text_column")
        counts = Counter(unit for text in texts for unit in units(text, "characters"))
        return sorted(unit for unit, count in counts.items() if count >= self.min_count)

    def sample_ids(self, split: Split) -> list[str]:
        """Return the name of every row of `split`."""
        return self.table(split).ids

    def make_dataset(self, split: Split) -> MapDataset:
        """Return the texts of `split`."""
        table, classes = self.table(split), self.class_names
        labels = table.column(self.label_column, "data.label_column")
        for index, label in enumerate(labels):
            if label not in classes:
                known = ", ".join(classes)
                raise UserError(f"label {label!r} in {table.where(index)} is none of the training split's: {known}.")
        return self._dataset(table, torch.tensor([classes.index(label) for label in labels]))

    def _dataset(self, table: Table, labels: Tensor) -> TextDataset:
        encoder = Encoder(self.fact("vocabulary"), self.fact("tokenizer"), self.max_length)
        return TextDataset(table.column(self.text_column, "data.text_column"), labels, table.ids, encoder)

    def make_sampler(self, data: MapDataset, **arguments: Any) -> EpochSampler:
        """Return the order of `data`, by length while training."""
        if self.bucketing and arguments["train"] and isinstance(data, TextDataset):
            return BucketSampler(data.lengths, batch_size=self.batch_size, **arguments)
        return super().make_sampler(data, **arguments)

    def predict_dataloader(self) -> DataLoader[dict[str, Any]]:
        """Return the loader over `predict_file`, whose labels are -1, or over the test split."""
        if self.predict_file is None:
            return self.loader("test")
        table = read_table(Path(self.predict_file), self.id_columns)
        return self.loader("test", self._dataset(table, torch.full((len(table.rows),), -1)))
