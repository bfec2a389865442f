"""A segmenter's pictures: IoU by class, and predictions laid over images beside the truth."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics.functional.classification import multiclass_confusion_matrix

from ...practices.counting import native_counts
from ...reading.masks import IGNORED, overlay, palette
from .evaluate import outputs, photo, spread, training_batch
from .page import Picture, Section, Table

LIMIT, SHOWN = 200, 6
STRIPS = "Left the image, in the middle the truth, on the right the prediction."
BATCH = "The first samples of the first epoch, as the network saw them; each mask must lie on its image."


def sections(cli: Any, module: Any, folder: Path) -> list[Section]:
    """Return what there is to see of a module whose forward gives logits (batch, classes, height, width)."""
    names, size = module.class_names, len(cli.datamodule.dataset("val"))
    indices = spread(size, LIMIT)
    matrices = torch.stack([one for _, _, _, one in compared(cli, module, indices)])
    order = [indices[i] for i in iou(matrices).nanmean(1).argsort(stable=True).tolist()]
    middle = max(0, (len(order) - SHOWN) // 2)
    legend = [(palette()[label].tolist(), name) for label, name in enumerate(names)]
    looked = f"{len(indices)} of {size} validation images."

    def shown(title: str, words: str, chosen: list[int]) -> Section:
        pictures = strips(cli, module, chosen, folder / title.lower().replace(" ", "-"))
        return Section(title, f"{STRIPS} {words}", pictures=pictures, kind="strips", legend=legend)

    batch = training_batch(cli.datamodule, SHOWN)
    trained = [
        strip(image, [mask], folder / f"training-{number:02d}.png", str(name))
        for number, (image, mask, name) in enumerate(zip(batch["image"], batch["mask"], batch["name"], strict=True))
    ]
    return [
        Section("Classes", looked, per_class(matrices.sum(0), names)),
        shown("Most wrong", "The lowest mean IoU first.", order[:SHOWN]),
        shown("Typical", "Around the median.", order[middle : middle + SHOWN]),
        Section("Training batch", BATCH, pictures=trained, kind="strips", legend=legend),
    ]


def compared(cli: Any, module: Any, indices: list[int]) -> Any:
    """Yield name, image, [mask, prediction], and counts (classes, classes) by truth, of validation samples."""
    for batch, logits in outputs(cli, module, indices):
        for name, image, mask, scores in zip(batch["name"], batch["image"], batch["mask"], logits, strict=True):
            found = scores.argmax(0)
            with native_counts():
                matrix = multiclass_confusion_matrix(found, mask, len(scores), ignore_index=IGNORED)
            yield name, image, [mask, found], matrix


def iou(matrix: Tensor) -> Tensor:
    """Return the IoU of each class of counts (..., classes, classes), NaN where it is neither there nor predicted."""
    right = matrix.diagonal(dim1=-2, dim2=-1)
    return right / (matrix.sum(-1) + matrix.sum(-2) - right)


def per_class(matrix: Tensor, names: list[str]) -> Table:
    """Return IoU, precision, recall and share of the pixels of each class, and their means."""
    columns = [iou(matrix), matrix.diag() / matrix.sum(0), matrix.diag() / matrix.sum(1), matrix.sum(1) / matrix.sum()]
    rows = [[name, *map(float, values)] for name, *values in zip(names, *columns, strict=True)]
    rows.append(["mean", *(float(column.nanmean()) for column in columns[:3]), None])
    caption = "IoU: pixels that truth and prediction share, of those of either. A dash: not there, or never predicted."
    return Table(["class", "IoU", "precision", "recall", "share of pixels"], rows, caption)


def strips(cli: Any, module: Any, indices: list[int], file: Path) -> list[Picture]:
    """Return image, truth and prediction of validation samples, side by side."""
    pictures: list[Picture] = []
    for name, image, masks, matrix in compared(cli, module, indices):
        caption = f"{name}, mean IoU {iou(matrix).nanmean():.2f}"
        pictures.append(strip(image, masks, file.with_name(f"{file.name}-{len(pictures):02d}.png"), caption))
    return pictures


def strip(image: Tensor, masks: list[Tensor], file: Path, caption: str) -> Picture:
    """Write `image` and, beside it, itself under each of `masks`."""
    layers = [image, *(overlay(image, mask, 0.6).float() / 255 for mask in masks)]
    padded = [nn.functional.pad(layer, (0, 1), value=1.0) for layer in layers]
    return photo(torch.cat(padded, dim=2)[..., :-1], file, caption, largest=900)
