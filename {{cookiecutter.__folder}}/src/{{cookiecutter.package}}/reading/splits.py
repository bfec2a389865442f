"""Splits that last: a name's hash decides, so that adding samples moves no other sample."""

import hashlib
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..practices.loaders import Split

SPLITS: tuple[Split, ...] = ("train", "val", "test")


def split_hash(name: str) -> float:
    """Return a number from 0 to 1 that `name` alone decides."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 2**32


def split_of(name: str, val_share: float = 0.15, test_share: float = 0.15) -> Split:
    """Return the split that a sample's name belongs to, for ever: adding samples moves no other.

    A random split would be drawn again by every process and change with the number of samples, and
    then the test set holds samples that the model was trained on.
    """
    position = split_hash(name)
    return "test" if position < test_share else "val" if position < test_share + val_share else "train"


def carve(name: str, carved: Collection[Split]) -> Split:
    """Return the split of a training sample's name when only the splits `carved` are taken out of training."""
    split = split_of(name)
    return split if split in carved else "train"


@contextmanager
def written_whole(root: Path) -> Iterator[Path]:
    """Give a folder to write into, which becomes `root` in the end: whole or not at all."""
    temporary = root.with_name(f".{root.name}-{os.getpid()}")
    temporary.mkdir(parents=True)
    yield temporary
    try:
        temporary.rename(root)
    except OSError:  # another rank may have been faster
        if not root.is_dir():
            raise
