"""Watch what leads to numbers that are not finite, layer by layer, before they are there."""

from typing import Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import grad_norm
from torch import Tensor
from torch.optim import Optimizer


class WatchLayers(Callback):
    """Send every layer's gradient norm to all loggers, and its weights' histogram to those that draw it.

    Norms that grow or vanish from layer to layer are seen here long before a loss is NaN.

    Args:
        every_n_steps: Steps between two looks; each copies all weights to the CPU.
    """

    def __init__(self, every_n_steps: int = 100) -> None:
        self.every_n_steps = every_n_steps

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Look at gradients after unscaling and before clipping."""
        if trainer.global_step % self.every_n_steps:
            return
        norms = {name: float(norm) for name, norm in grad_norm(pl_module, norm_type=2).items()}
        for logger in trainer.loggers if trainer.is_global_zero else []:
            logger.log_metrics(norms, trainer.global_step)
            for name, weights in pl_module.named_parameters():
                _histogram(logger, f"weights/{name}", weights.detach().float().cpu(), trainer.global_step)


def _histogram(logger: Any, name: str, values: Tensor, step: int) -> None:
    kind = type(logger).__name__
    if kind == "TensorBoardLogger":
        logger.experiment.add_histogram(name, values, step)
    elif kind == "WandbLogger":
        import wandb

        histogram = wandb.Histogram(np_histogram=np.histogram(values, 64))
        logger.experiment.log({name: histogram, "trainer/global_step": step})
