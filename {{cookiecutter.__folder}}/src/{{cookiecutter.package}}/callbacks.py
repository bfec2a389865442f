"""Callbacks of every run, whatever a configuration adds: checkpoints, early stopping, a monitor that exists."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint

from .practices.errors import UserError
from .resume import ExactResume


@dataclass
class Monitor:
    """The one metric by which the best checkpoint is chosen and training is stopped.

    Args:
        metric: Its name as logged, such as val/loss.
        mode: Whether low or high is good.
        patience: Epochs without a new best after which training stops; null never stops early.
        target: Value that would be good enough; changes nothing, but what is reached is compared with it.
    """

    metric: str = "val/loss"
    mode: Literal["min", "max"] = "min"
    patience: int | None = 10
    target: float | None = None


@dataclass
class Checkpoint:
    """How much of a run may be lost.

    Args:
        every_n_train_steps: Steps between two writings of last.ckpt; null writes it once an epoch.
    """

    every_n_train_steps: int | None = None


class CheckMonitor(Callback):
    """Stop before the first training step if the monitored metric is never logged.

    Lightning notices at the end of the first epoch, which may be a day away.
    """

    def __init__(self, metric: str) -> None:
        """Look for `metric`."""
        self.metric = metric

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look, during the sanity check, which runs some validation batches first."""
        known = sorted(trainer.callback_metrics)
        if trainer.sanity_checking and self.metric not in known and not self.metric.startswith("train/"):
            raise UserError(f"monitor.metric is {self.metric!r}, but what is logged is {', '.join(known)}.")


def standard_callbacks(monitor: Monitor, checkpoint: Checkpoint, run: Path) -> list[Callback]:
    """Return what every run has. They are made here, not in a list that an overlay would replace as a whole."""
    folder = run / "checkpoints"
    callbacks: list[Callback] = [
        ExactResume(folder, checkpoint.every_n_train_steps),
        CheckMonitor(monitor.metric),
        # One name: a resumed run that reaches a best once more replaces it, instead of writing best-v1.
        ModelCheckpoint(folder, "best", monitor.metric, mode=monitor.mode, enable_version_counter=False),
        LearningRateMonitor(logging_interval="step"),
    ]
    if monitor.patience is not None:
        callbacks.append(EarlyStopping(monitor.metric, mode=monitor.mode, patience=monitor.patience))
    return callbacks
