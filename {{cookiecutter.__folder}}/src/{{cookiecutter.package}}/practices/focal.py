"""The focal loss, for classes that are rare: what is easy weighs less, and most of what is easy is common."""

import torch
from torch import Tensor
from torch.nn import functional as F


def flatten(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return `logits` (batch, classes, ...) as (samples, classes), and `labels` (batch, ...) as (samples,).

    On a GPU the losses over flat samples give the same result each time; those over images do not.
    """
    return logits.movedim(1, -1).flatten(0, -2), labels.flatten()


def focal_loss(
    logits: Tensor, labels: Tensor, gamma: float = 2.0, label_smoothing: float = 0.0, ignored: int = -100
) -> Tensor:
    """Return the mean of (1 - p)^gamma (-log p), p being the probability of the label: hard samples weigh more.

    `logits` is float (batch, classes, ...). `labels` is int64 (batch, ...), where `ignored` counts nowhere, or float
    (batch, classes), the share of each class. `label_smoothing` spreads that share over all. `gamma` 0 is the
    cross-entropy.
    Source: Lin et al., Focal Loss for Dense Object Detection, 2017, here for many classes.
    """
    soft = labels.is_floating_point()
    flat, targets = (logits, labels) if soft else flatten(logits, labels)
    log_p = flat.log_softmax(1)
    # expm1, as 1 - p would lose all digits where p is nearly 1.
    terms = -((-torch.expm1(log_p)).clamp(min=1e-8).pow(gamma) * log_p)
    if soft:
        own, valid = (terms * targets).sum(1), torch.ones_like(terms[:, 0])
    else:
        valid = (targets != ignored).to(terms.dtype)
        own = F.nll_loss(-terms, targets, ignore_index=ignored, reduction="none")
    losses = own if not label_smoothing else (1 - label_smoothing) * own + label_smoothing * terms.mean(1)
    return (losses * valid).sum() / valid.sum().clamp(min=1)
