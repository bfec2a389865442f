"""Learning-rate schedules: how often each is stepped, how long it is, and what it looks at."""

import math
from typing import Any, Literal

from lightning.pytorch import Trainer
from lightning.pytorch.utilities.types import LRSchedulerConfigType
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ConstantLR, LambdaLR, OneCycleLR, ReduceLROnPlateau

from .errors import UserError

Schedule = Literal["warmup_cosine", "one_cycle", "plateau", "constant"]


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


class OneCycle(OneCycleLR):
    """Torch's, without its length in the checkpoint, which would end a resumed run at the old number of steps."""

    def state_dict(self) -> dict[str, Any]:
        """Return where it is, not how long it is."""
        return {name: self.__dict__[name] for name in ("last_epoch", "_step_count", "_last_lr")}


def make_schedule(name: Schedule, optimizer: Optimizer, warmup_share: float, trainer: Trainer) -> LRSchedulerConfigType:
    """Return schedule `name` of `optimizer`, stepped as it must be; a rate that rises does so in `warmup_share`.

    Raises:
        UserError: The schedule follows the length of the run, and the run has none.
    """
    if name == "plateau":
        return _plateau(optimizer, trainer)
    if name == "constant":
        return {"scheduler": ConstantLR(optimizer, factor=1.0), "interval": "step"}
    steps = trainer.estimated_stepping_batches  # of the optimizer: accumulation and devices are counted
    if math.isinf(steps):
        raise UserError(f"model.schedule {name} needs an end: set trainer.max_epochs, or take plateau or constant.")
    if name == "one_cycle":
        peaks = [group["lr"] for group in optimizer.param_groups]
        return {"scheduler": OneCycle(optimizer, peaks, int(steps), pct_start=warmup_share), "interval": "step"}
    return {"scheduler": warmup_cosine(optimizer, round(warmup_share * steps), int(steps)), "interval": "step"}


def _plateau(optimizer: Optimizer, trainer: Trainer) -> LRSchedulerConfigType:
    """Divide the rate by ten after three looks without a new best, a look being a validation."""
    chosen: list[Any] = [callback for callback in trainer.checkpoint_callbacks if getattr(callback, "monitor", None)]
    best = chosen[-1] if chosen and trainer.enable_validation else None
    return {
        "scheduler": ReduceLROnPlateau(optimizer, best.mode if best else "min", factor=0.1, patience=3),
        "monitor": best.monitor if best else "val/loss" if trainer.enable_validation else "train/loss",
        # In step with validation: in an epoch without one there is no metric to look at.
        "frequency": trainer.check_val_every_n_epoch or 1,
        "strict": False,
    }
