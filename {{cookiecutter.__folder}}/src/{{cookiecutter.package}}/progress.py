"""What a command says: a bar in a terminal, a line an epoch elsewhere, and at its end the next command."""

import logging
import math
import sys
import time
import warnings
from datetime import timedelta
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar, RichProgressBar

from .callbacks import Monitor
from .cli import commands

# After which command which one is sensible.
NEXT = {"debug": "fit", "fit": "test", "validate": "test", "test": "predict", "predict": "todo", "export": "test"}


class Course(ProgressBar):
    """How far a training is: the monitored metric, its best, and the time left."""

    def __init__(self, monitor: str, mode: str) -> None:
        """Watch the metric `monitor`, of which `mode` (min or max) is good."""
        super().__init__()
        self.monitor, self.better = monitor, min if mode == "min" else max
        self.known: dict[str, float | str] = {}
        self.start, self.begin, self.total = 0, time.monotonic(), math.inf

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to count; what came before a resume says nothing about the speed now."""
        self.start, self.begin = trainer.global_step, time.monotonic()
        self.total = trainer.estimated_stepping_batches
        super().on_train_start(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the metric; on all ranks, as computing it may wait for all, and not at every step."""
        # The last is the project's own; the configuration's come before it.
        before = getattr([None, *trainer.checkpoint_callbacks][-1], "best_model_score", None)
        if self.monitor in trainer.callback_metrics and not trainer.sanity_checking:
            value = trainer.callback_metrics[self.monitor].item()
            best = value if before is None else self.better(float(before), value)  # in this order NaN is no best
            self.known = {self.monitor: value, "best": best}
        super().on_validation_end(trainer, pl_module)

    def speed(self, trainer: Trainer) -> float:
        """Return the steps a second, validation included."""
        return (trainer.global_step - self.start) / (time.monotonic() - self.begin)

    def course(self, trainer: Trainer) -> dict[str, float | str]:
        """Return the metric, its best and the time left, as far as they are known."""
        speed = self.speed(trainer)
        if not speed or not math.isfinite(self.total):
            return self.known
        return {**self.known, "left": str(timedelta(seconds=round((self.total - trainer.global_step) / speed)))}


class Bar(Course, RichProgressBar):
    """Lightning's bar: epoch, batches, time, steps a second and loss; with what `Course` knows."""

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Return what stands behind the bar."""
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)  # runs have folders, not numbers
        return metrics | (self.course(trainer) if trainer.training else {})


class Lines(Course):
    """A line an epoch, for log files and pipes."""

    def disable(self) -> None:
        """Do nothing: there is no bar to hide, and every rank must look at the metrics."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the line of this epoch."""
        loss = trainer.callback_metrics.get("train/loss")
        values = {**({} if loss is None else {"train/loss": loss.item()}), **self.course(trainer)}
        words = [f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}", f"{self.speed(trainer):.3g} steps/s"]
        words += [f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items()]
        if trainer.is_global_zero:
            print("  ".join(words), flush=True)


def make_progress(monitor: Monitor, trainer_config: Any) -> list[ProgressBar]:
    """Return the bar or the lines; nothing where the configuration has a bar of its own or wants none."""
    own = any(isinstance(one, ProgressBar) for one in trainer_config.callbacks or [])
    if own or trainer_config.enable_progress_bar is False:
        return []
    return [(Bar if sys.stdout.isatty() else Lines)(monitor.metric, monitor.mode)]


def compare_target(target: float | None, mode: str, value: float) -> str:
    """Return the words that say whether `value` reaches `target`."""
    if target is None:
        return ""
    reached = value <= target if mode == "min" else value >= target
    return f", the target {target:g} is {'' if reached else 'not '}reached"


def say_next(command: str) -> None:
    """Say which command comes after `command`."""
    name = NEXT[command] if NEXT[command] in commands() else "--help"
    print(f"Next: python -m {(__package__ or '').split('.')[0]} {name}")


def quieten() -> None:
    """Silence what Lightning says about decisions that are made here on purpose, and its advertisements."""
    warnings.filterwarnings("ignore", ".*args parameter is intended to run from within Python.*")
    warnings.filterwarnings("ignore", ".*`isinstance.treespec, LeafSpec.` is deprecated.*")
    warnings.filterwarnings("ignore", ".*callbacks used to create the checkpoint need to be provided.*")
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    warnings.filterwarnings("ignore", ".*Checkpoint directory .* exists and is not empty.*")
    logging.getLogger("lightning.pytorch.utilities.rank_zero").addFilter(lambda record: "Tip:" not in record.msg)
