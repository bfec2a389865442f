"""Segment images larger than memory, tile by tile, as if they were one.

module = SemanticSegmenter.load_from_checkpoint("runs/latest/checkpoints/best.ckpt", weights_only=True)
scan = np.load("scan.npy", mmap_mode="r")  # (height, width, 3) uint8; or a zarr array
segment_tiles(module.eval(), scan, new_labels("labels.npy", scan.shape[:2]))
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Window = tuple[slice, slice]


class Pixels(Protocol):
    """A memory-mapped NumPy array, a zarr array, or whatever else has a shape and slices."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Height, width, channels."""
        ...

    def __getitem__(self, window: Any, /) -> Any:
        """Return the pixels of `window`."""
        ...


def new_labels(path: str | Path, size: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return a new memory-mapped array of labels, uint8 of `size` (height, width), in the file `path` (.npy)."""
    labels: NDArray[np.uint8] = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=tuple(size))
    return labels


def tiles(height: int, width: int, tile: int, overlap: int) -> Iterator[tuple[Window, Window]]:
    """Yield windows (to read, to write): what is written partitions the image, what is read is `overlap` more.

    At the image's own border nothing is added, so that a network meets that border as in the whole image.
    """
    core = tile - 2 * overlap
    for top in range(0, height, core):
        for left in range(0, width, core):
            bottom, right = min(top + core, height), min(left + core, width)
            rows = slice(max(top - overlap, 0), min(bottom + overlap, height))
            columns = slice(max(left - overlap, 0), min(right + overlap, width))
            yield (rows, columns), (slice(top, bottom), slice(left, right))


@torch.inference_mode()
def segment_tiles(
    predict: Callable[[Tensor], Tensor], pixels: Pixels, labels: Any, tile: int = 1024, overlap: int = 128
) -> None:
    """Write the most probable label of every pixel into `labels`, with one tile in memory at a time.

    The result is that of the whole image where `overlap` is at least the network's receptive radius.
    Networks that look at the whole image (deeplabv3, lraspp) look at the whole tile instead.

    Args:
        predict: Maps float32 (1, 3, height, width) in 0 to 1 to logits (1, classes, height, width): a module in eval.
        pixels: uint8 of shape (height, width, 3), at the scale that the network was trained on.
        labels: Written to, uint8 of shape (height, width); see `new_labels`.
        tile: Height and width that is read, pixels.
        overlap: Pixels read on each side beyond what is written; a multiple of the network's total stride, as
            `tile` is, or its grid lies differently in each tile. 32 holds for all networks here.

    Raises:
        ValueError: The sizes do not fit each other, or the image is not one of three channels.
    """
    if not 0 <= 2 * overlap < tile or tile % 32 or overlap % 32:
        raise ValueError(f"tile and overlap must be multiples of 32, tile above 2 x overlap, not {tile} and {overlap}.")
    if len(pixels.shape) != 3 or pixels.shape[2] != 3:
        raise ValueError(f"pixels must have shape (height, width, 3), but has {tuple(pixels.shape)}.")
    for read, write in tiles(pixels.shape[0], pixels.shape[1], tile, overlap):
        image = torch.from_numpy(np.array(pixels[read])).permute(2, 0, 1).float().div(255)[None]
        found = predict(image).argmax(1)[0].to(torch.uint8).cpu().numpy()
        top, left = write[0].start - read[0].start, write[1].start - read[1].start
        height, width = (part.stop - part.start for part in write)
        labels[write] = found[top : top + height, left : left + width]
