"""Losses that torch lacks, for classes of very different size. All ignore what is labelled so."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from .focal import flatten, focal_loss


def cross_entropy(logits: Tensor, labels: Tensor, ignored: int = 255) -> Tensor:
    """Return the mean cross-entropy over all labels but `ignored`; 0, not NaN, where all are.

    `logits` is float (batch, classes, ...), `labels` int64 (batch, ...).
    """
    total = F.cross_entropy(*flatten(logits, labels), ignore_index=ignored, reduction="sum")
    return total / (labels != ignored).sum().clamp(min=1)


def dice_loss(logits: Tensor, labels: Tensor, ignored: int = 255) -> Tensor:
    """Return 1 - 2 Σpy / (Σp + Σy), sums over the batch's samples, averaged over the classes it holds.

    `logits` is float (batch, classes, ...), `labels` int64 (batch, ...); p is the softmax, y 1 for the label. A
    class weighs the same however few samples it has; one that is not in the batch has no Dice and counts nowhere.
    Source: Milletari et al., V-Net, 2016.
    """
    valid, samples = (labels != ignored)[:, None], [0, *range(2, logits.ndim)]
    classes = torch.arange(logits.shape[1], device=logits.device).reshape(-1, *[1] * (logits.ndim - 2))
    truth, probabilities = (labels[:, None] == classes) & valid, logits.softmax(1) * valid
    sizes = truth.sum(samples)
    dice = 2 * (probabilities * truth).sum(samples) / (probabilities.sum(samples) + sizes).clamp(min=1e-7)
    present = sizes > 0
    return ((1 - dice) * present).sum() / present.sum().clamp(min=1)


def dice_cross_entropy(logits: Tensor, labels: Tensor, ignored: int = 255) -> Tensor:
    """Return the sum of both: the one counts all classes the same, the other learns fast from the first step.

    `logits` is float (batch, classes, ...), `labels` int64 (batch, ...).
    Source: Isensee et al., nnU-Net, 2021.
    """
    return dice_loss(logits, labels, ignored) + cross_entropy(logits, labels, ignored)


Loss = Literal["dice_cross_entropy", "cross_entropy", "dice", "focal"]
LOSSES: dict[Loss, Callable[..., Tensor]] = {
    "dice_cross_entropy": dice_cross_entropy,
    "cross_entropy": cross_entropy,
    "dice": dice_loss,
    "focal": partial(focal_loss, ignored=255),
}
