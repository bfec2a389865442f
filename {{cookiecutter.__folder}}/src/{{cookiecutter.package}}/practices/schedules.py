"""Learning-rate schedules, stepped per optimizer step and as long as the run is."""

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def warmup_cosine(optimizer: Optimizer, warmup_steps: int, total_steps: int) -> LambdaLR:
    """Rise linearly to the full rate in `warmup_steps`, then fall to zero along a half cosine.

    The first steps of Adam rest on few gradients, so a full rate there can ruin what was pretrained.
    Nothing of the length is stored in a checkpoint: a run resumed with more epochs follows the longer curve.
    Source: Loshchilov and Hutter, SGDR, 2017 (cosine); Goyal et al., Accurate, Large Minibatch SGD, 2017 (warmup).
    """

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / (warmup_steps + 1)
        progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))

    return LambdaLR(optimizer, factor)
