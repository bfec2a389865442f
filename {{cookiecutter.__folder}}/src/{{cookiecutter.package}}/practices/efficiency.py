"""Memory for time: activations that are computed again instead of kept."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


def checkpoint_blocks(network: nn.Module) -> int:
    """Keep only the inputs of the network's blocks and compute the rest again in backward; return their number.

    A block is a member, with weights, of one of the outermost `Sequential` or `ModuleList`: a layer of
    a transformer, a stage of a convolutional network. Names, gradients and random draws stay the same.
    Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016.
    """
    if isinstance(network, nn.Sequential | nn.ModuleList):
        blocks = [block for block in network if any(True for _ in block.parameters())]
        for block in blocks:
            if "forward" not in vars(block):  # Lightning may come here again, before a test
                block.forward = partial(_run, block, block.forward)
        return len(blocks)
    return sum(checkpoint_blocks(child) for child in network.children())


def _run(block: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
    if not (block.training and torch.is_grad_enabled()):
        return forward(*args, **kwargs)
    norms = [m for m in block.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    # The old variant (use_reentrant=True) gives no gradient to a block whose input needs none: the first.
    return checkpoint(forward, *args, use_reentrant=False, context_fn=partial(_contexts, norms), **kwargs)


def _contexts(norms: list[_BatchNorm]) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    return nullcontext(), _untracked(norms)


@contextmanager
def _untracked(norms: list[_BatchNorm]) -> Iterator[None]:
    """Leave running statistics alone: the second pass would count every batch twice."""
    before = [(norm, norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm, _, count in before:
        norm.momentum, norm.num_batches_tracked = 0.0, None if count is None else count.clone()
    try:
        yield
    finally:
        for norm, momentum, count in before:
            norm.momentum, norm.num_batches_tracked = momentum, count
