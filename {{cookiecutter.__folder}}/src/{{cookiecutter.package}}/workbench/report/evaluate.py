"""The best checkpoint's outputs on a bounded, evenly spread part of the validation split, and a training batch."""

import os
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ...practices.loaders import BaseDataModule, SeededDataset
from .page import Picture


def spread(size: int, limit: int) -> list[int]:
    """Return at most `limit` of `size` indices, evenly spread: the first ones may all be of one class."""
    count = min(size, limit)
    return [i * size // count for i in range(count)]


def outputs(cli: Any, module: Any, indices: list[int]) -> Iterator[tuple[dict[str, Any], Tensor]]:
    """Yield batch and output, on the CPU, of `module` for the validation samples `indices`, in their order."""
    # A loader of its own, as the data module's would give this rank its part alone.
    data, device = cli.datamodule, cli.trainer.strategy.root_device
    samples = SeededDataset(data.dataset("val"), int(os.environ.get("PL_GLOBAL_SEED", "42")))
    loader: Any = DataLoader(samples, data.batch_size, sampler=indices, collate_fn=data.collate)
    module.to(device).eval()
    with torch.inference_mode():
        for batch in loader:
            inputs = {name: value.to(device) for name, value in module.example_inputs(batch).items()}
            yield batch, module(**inputs).float().cpu()


def training_batch(data: BaseDataModule, size: int) -> dict[str, Any]:
    """Return the first batch of epoch 0, of at most `size` samples, as augmentation and sampler make it."""
    data = copy(data)
    data.num_workers, data.position, data.batch_size = 0, (0, 0), min(size, data.batch_size)
    return dict(next(iter(data.loader("train"))))


def photo(image: Tensor, file: Path, caption: str, largest: int = 256) -> Picture:
    """Write `image`, float (3, height, width) in 0 to 1, as PNG of at most `largest` pixels a side."""
    from PIL import Image

    picture = Image.fromarray((image.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy())
    picture.thumbnail((largest, largest))
    file.parent.mkdir(parents=True, exist_ok=True)
    picture.save(file)
    return Picture(file, caption, caption)
