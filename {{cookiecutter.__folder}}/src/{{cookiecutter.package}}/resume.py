"""Exact resume: a run that is killed and continued ends, to the bit, as one that never stopped.

Lightning's checkpoints lack the random states, the position in the data, and what metrics had summed
up; its ModelCheckpoint also saves inside a step, before that step's rows are logged. Here last.ckpt is
written where nothing is half done: before a batch or an epoch begins. Everything missing is added, and
put back at the same place, so it does not matter what else draws random numbers while a run starts.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.trainer.connectors.logger_connector.result import _Metadata, _ResultMetric, _Sync
from torch import distributed, nn
from torchmetrics import Metric, MetricCollection

from .practices.loaders import get_states, set_states
from .practices.loggers import MetricsCsv

EXIT_STOPPED = 75  # sysexits.h: a temporary failure, try again
SIGNALS = (signal.SIGTERM, *([signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else []))  # SLURM's --signal=USR1@120


class Stopped(Exception):  # noqa: N818
    """The run was asked to stop, and last.ckpt is written."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint beside its place and rename it, so that one killed meanwhile leaves the old one whole."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write `checkpoint` to `path`, a file on a local disk."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.tmp")
        with temporary.open("wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)


class ExactResume(Callback):
    """Write last.ckpt each epoch (and every N steps), and continue from it exactly. Must be the first callback."""

    def __init__(self, folder: Path, every_n_train_steps: int | None = None) -> None:
        """Write to `folder`/last.ckpt."""
        self.path, self.every = folder / "last.ckpt", every_n_train_steps
        self.done = False
        self.signal: int | None = None
        self._loaded: dict[str, Any] = {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Keep what `state_dict` needs."""
        self.trainer = trainer
        self.csv = next((one for one in trainer.loggers if isinstance(one, MetricsCsv)), None)

    def state_dict(self) -> dict[str, Any]:
        """Return what Lightning leaves out, as plain values and tensors. Every rank calls it, each has its own."""
        trainer, loop = self.trainer, self.trainer.fit_loop
        own = {
            "random": random_states(),
            "metrics": {name: [m._update_count, m.metric_state] for name, m in used_metrics(trainer.lightning_module)},
            "sums": {key: [facts(m.meta), m.metric_state] for key, m in loop.epoch_loop._results.items() if is_sum(m)},
            "latest": dict(trainer._logger_connector._callback_metrics),
        }
        ranks: list[Any] = [own] * trainer.world_size
        if trainer.world_size > 1:
            distributed.all_gather_object(ranks, own)
        position = (loop.epoch_progress.current.processed, loop.epoch_loop.batch_progress.current.ready)  # type: ignore[attr-defined]
        return {
            "done": self.done,
            "early": trainer.should_stop,
            "length": length(trainer),
            "position": position,
            "rows": self.csv.rows if self.csv else 0,
            "ranks": ranks,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Tell the data where to go on, before its first iterator fetches ahead; cut metrics.csv back."""
        self._loaded = state_dict["ranks"][self.trainer.global_rank]
        self.done = state_dict["done"]
        as_long = length(self.trainer) == state_dict["length"]
        self.trainer.should_stop = self.done and state_dict["early"] and as_long
        epoch, batch = state_dict["position"]
        self.trainer.datamodule.position = (epoch, 0 if self.done else batch)  # type: ignore[attr-defined]
        if self.csv:
            self.csv.cut(state_dict["rows"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take over the signals from Lightning, which would stop while gradients are being summed up."""
        self.done = False
        for number in SIGNALS:
            with suppress(ValueError):  # not in the main thread
                signal.signal(number, self._asked_to_stop)

    def _asked_to_stop(self, number: int, frame: Any) -> None:
        self.signal = number

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore, or save what the epoch before has left: all is logged, validated and counted."""
        loop = trainer.fit_loop
        if self._loaded:
            loop.epoch_loop.restarting = False  # a new epoch, even where Lightning counts in steps
            self._restore(pl_module)
        loop.epoch_loop.batch_progress.reset_on_run()  # as Lightning does next
        with begun_not_yet(loop.epoch_progress):
            self._save_if(trainer, due=True)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Restore, or save what the batch before has left, unless gradients wait to be added to."""
        loop = trainer.fit_loop.epoch_loop
        if self._loaded:
            self._restore(pl_module)
            trainer._logger_connector._first_loop_iter = False  # at an epoch's first batch Lightning empties its sums
        if not batch_idx or batch_idx % trainer.accumulate_grad_batches:
            return
        with begun_not_yet(loop.batch_progress):
            # On resuming after a validation inside an epoch, Lightning counts that step once more.
            twice = int(loop._should_check_val_fx(trainer.fit_loop._data_fetcher))  # type: ignore[arg-type]
            loop._batches_that_stepped -= twice
            self._save_if(trainer, due=self.every is not None and trainer.global_step % self.every == 0)
            loop._batches_that_stepped += twice

    def _save_if(self, trainer: Trainer, due: bool) -> None:
        """Save when `due`, or when any rank was asked to stop: then stop."""
        stop = self.signal is not None
        if trainer.world_size > 1:
            stop = trainer.strategy.reduce_boolean_decision(stop, all=False)
        if due or stop:
            self._save(trainer)
        if stop:
            raise Stopped(f"stopped by {signal.Signals(self.signal or signal.SIGTERM).name}")

    def _save(self, trainer: Trainer) -> None:
        for logger in trainer.loggers:
            logger.save()  # the rows first: a checkpoint must not count rows that are not on the disk
        trainer.save_checkpoint(self.path, weights_only=False)

    def _restore(self, module: LightningModule) -> None:
        """Put back, on this rank, what `state_dict` took."""
        loaded, self._loaded = self._loaded, {}
        metrics = dict(module.named_modules())
        for name, (count, states) in loaded["metrics"].items():
            metrics[name]._update_count = count  # type: ignore[assignment]
            for state, value in move_data_to_device(states, module.device).items():
                setattr(metrics[name], state, value)
        for key, (meta, states) in loaded["sums"].items():
            sync = _Sync(fn=self.trainer.strategy.reduce, _should=meta.pop("sync"), rank_zero_only=meta.pop("zero"))
            metric = _ResultMetric(_Metadata(**meta), is_tensor=True).to(module.device)
            metric.meta.sync = sync
            vars(metric).update(move_data_to_device(states, module.device))
            self.trainer.fit_loop.epoch_loop._results[key] = metric
        self.trainer._logger_connector._callback_metrics.update(loaded["latest"])
        set_random_states(loaded["random"])

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the end, before other callbacks exchange the weights for an average."""
        self.done = True
        self._save(trainer)


@contextmanager
def begun_not_yet(progress: Any) -> Iterator[None]:
    """Take back, for a while, that Lightning has counted one more as ready."""
    last, progress.is_last_batch = getattr(progress, "is_last_batch", False), False
    for count in (progress.total, progress.current):
        count.ready -= 1
    yield
    for count in (progress.total, progress.current):
        count.ready += 1
    progress.is_last_batch = last


def length(trainer: Trainer) -> tuple[int, int]:
    """Return the epochs and steps that `trainer` is to train, -1 for no limit."""
    epochs, steps = trainer.max_epochs, trainer.max_steps
    return (1000 if steps == -1 else -1) if epochs is None else epochs, steps  # Lightning's own default


def used_metrics(module: nn.Module) -> list[tuple[str, Metric]]:
    """Return the metrics of `module` that hold something, by name."""
    for collection in module.modules():
        if isinstance(collection, MetricCollection):
            collection.values(copy_state=False)  # those computed from one state then really share it
    return [(n, m) for n, m in module.named_modules() if isinstance(m, Metric) and m._update_count]


def is_sum(metric: _ResultMetric) -> bool:
    """Return whether `metric` holds a number logged by the epoch, not yet logged and begun anew."""
    return metric.is_tensor and metric.meta.on_epoch and not metric.has_reset


def facts(meta: _Metadata) -> dict[str, Any]:
    """Return what `meta` is made of, as plain values."""
    known = {name: value for name, value in vars(meta).items() if name not in ("reduce_fx", "_sync")}
    return known | {"reduce_fx": meta.reduce_fx.__name__, "sync": meta.sync.should, "zero": meta.sync.rank_zero_only}


def random_states() -> dict[str, Any]:
    """Return the states of Python's, NumPy's, torch's and the GPU's generators, loadable without unpickling code."""
    python, (kind, keys, *rest), cpu = get_states()
    gpu = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
    return {"python": python, "numpy": (kind, keys.tolist(), *rest), "torch": cpu, "cuda": gpu}


def set_random_states(states: dict[str, Any]) -> None:
    """Continue all generators where `random_states` saw them."""
    kind, keys, *rest = states["numpy"]
    set_states((states["python"], (kind, np.array(keys, np.uint32), *rest), states["torch"]))
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
