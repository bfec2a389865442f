"""Counts of classes that stay cheap where repeatable kernels are asked for."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def native_counts() -> Iterator[None]:
    """Let torchmetrics count by `torch.bincount` in deterministic runs, too.

    There it compares each sample with every cell of the confusion matrix: samples x classes² numbers a step,
    gigabytes for large images or many classes. Whole numbers add up to the same in any order.
    Source: torchmetrics, issue 3086.
    """
    asked = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(asked, warn_only=warns)
