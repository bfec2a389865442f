"""Checks of the machine: devices, speed, memory, disk, and the logger."""

import importlib.util
import itertools
import math
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch
from torch import Tensor

from ...practices.hardware import usable_cpus
from ...practices.loggers import must_be_offline
from .data import loader
from .project import SPLITS, Project, Result, check, fail_if


@check
def devices(project: Project) -> Result:
    """The devices that are there are used, in the precision asked for, and runs can be repeated."""
    trainer, asked = project.trainer, project.cli.config.trainer
    device, count = trainer.strategy.root_device.type, trainer.world_size
    figure = f"{count} x {device}, {type(trainer.strategy).__name__}, {trainer.precision}"
    if device == "cpu" and torch.accelerator.is_available():
        return Result("warn", figure, "A GPU is idle: set trainer.accelerator auto.")
    if device == "cpu" and count > usable_cpus():
        return Result("warn", figure, f"Set trainer.devices to at most {usable_cpus()}, the CPUs that may be used.")
    if str(trainer.precision) != str(asked.precision):
        return Result("warn", f"{figure} for {asked.precision}", f"Set trainer.precision {trainer.precision}.")
    if not asked.deterministic:
        return Result("warn", f"{figure}, not deterministic", "Two runs will differ: set trainer.deterministic true.")
    return Result("pass", f"{figure}, deterministic {str(asked.deterministic).lower()}")


@check
def batch_size(project: Project) -> Result:
    """An epoch has steps, and validation enough samples to measure."""
    train, val = (project.seen[split].total for split in SPLITS[:2])
    whole = project.data.batch_size * project.trainer.world_size * project.trainer.accumulate_grad_batches
    figure = f"{train:,} training samples are {train / whole:.1f} steps of {whole}; {val:,} to validate"
    if 3 * whole > train:
        state: Any = "fail" if whole > train else "warn"
        return Result(state, figure, f"Set data.batch_size to about {max(2, train // 10)}: an epoch needs steps.")
    few = [figure] if val < 30 else []
    return fail_if(few, "One sample weighs much in the metrics: validate on more, or use fit --folds.", figure, "warn")


@check
def loader_speed(project: Project) -> Result:
    """Steps do not wait for data."""
    rate, count, cpus = project.module.learning_rate, project.data.num_workers, usable_cpus()
    step = pace(project.steps(project.fresh(), itertools.cycle(project.batches), rate, 3.0))
    load = pace(iter(loader(project, 0)))
    waits = max(0.0, load / count - step) if count else load
    steps = project.seen["train"].total / project.data.batch_size * max(1, project.trainer.max_epochs or 1)
    figure = f"step {step * 1e3:.0f} ms, {load * 1e3:.0f} ms to load a batch, {max(1, count)} process(es) for it: "
    figure += f"waiting costs {waits * steps / 60:.1f} of {(waits + step) * steps / 60:.1f} minutes"
    needed = math.ceil(load / step)
    many = f"{needed} CPUs would end it, {cpus} may be used: use a cache, smaller samples, fewer changes of them."
    slow = [figure] if waits > step / 3 and waits * steps > 60 else []
    return fail_if(slow, f"Set data.num_workers {needed}." if needed < cpus else many, figure, "warn")


def pace(things: Iterator[Any], seconds: float = 3.0) -> float:
    """Return the median of the seconds that each of `things` takes, without the first, which starts it."""
    times, begin = list[float](), time.monotonic()
    for _ in itertools.islice(things, 12):
        times.append(-begin + (begin := time.monotonic()))
        if sum(times) > seconds:
            break
    return sorted(times[1:] or times)[len(times[1:]) // 2]


@check
def memory(project: Project) -> Result:
    """A step fits into memory."""
    module, kept = project.fresh(), dict[int, Tensor]()  # by storage; backward is not run, so any of its views will do
    pack, unpack = lambda value: kept.setdefault(value.untyped_storage().data_ptr(), value), lambda value: value
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = project.loss(module, project.batches[0])
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    weights = sum(p.nbytes * (4 if p.requires_grad else 1) for p in module.parameters())  # gradient, AdamW's two
    activations = sum(value.untyped_storage().nbytes() for place, value in kept.items() if place not in own)
    sample = activations / project.data.batch_size
    free = torch.cuda.mem_get_info(loss.device)[0] if loss.is_cuda else psutil.virtual_memory().available
    room = int(0.7 * (free - weights) / max(sample, 1))  # the rest is for kernels and fragments
    fit = f"{room:,}" if room < project.seen["train"].total else "all"
    figure = f"weights {size(weights)}, a sample about {size(sample)}, free {size(free)}: {fit} samples fit into a step"
    remedy = "Lower data.batch_size and raise trainer.accumulate_grad_batches, or use model.gradient_checkpointing."
    return fail_if([figure] if room < project.data.batch_size else [], remedy, figure)


def size(number: float) -> str:
    """Return a number of bytes for people."""
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.1f} MB"


@check
def disk_space(project: Project) -> Result:
    """Checkpoints and the export fit onto the disk."""
    weights = sum(p.nbytes for p in project.module.parameters())
    averages = sum("Averaging" in type(callback).__name__ for callback in project.trainer.callbacks)
    one = (1 + averages) * weights + 2 * sum(p.nbytes for p in project.module.parameters() if p.requires_grad)
    needed, free = 3 * one + weights, shutil.disk_usage(Path.cwd()).free  # best, last, one being written; ONNX
    figure = f"{size(needed)} for 3 checkpoints with AdamW's states and the ONNX file, {size(free)} free"
    full = [figure] if 10 * needed > free else []
    return fail_if(full, "Free some space: a full disk ends the run.", figure, "fail" if needed > free else "warn")


@check
def logger(project: Project) -> Result:
    """What is logged arrives."""
    chosen = project.cli.config.trainer.logger
    found = [arrives(one) for one in (chosen if isinstance(chosen, list) else [chosen])] or [arrives(None)]
    return next((one for one in found if one.state != "pass"), found[0])


def arrives(chosen: Any) -> Result:
    """Return how it stands with one logger of the configuration."""
    kind = chosen.class_path.rsplit(".", 1)[-1] if chosen and chosen is not True else "metrics.csv alone"
    package = {"WandbLogger": "wandb", "TensorBoardLogger": "tensorboard"}.get(kind)
    if package and not importlib.util.find_spec(package):
        return Result("fail", f"{kind} needs {package}, which is not installed", f"pip install {package}")
    if kind == "WandbLogger" and (chosen.init_args.offline or os.environ.get("WANDB_MODE") == "offline"):
        return Result("pass", "W&B offline, as chosen; upload later by wandb sync")
    offline = kind == "WandbLogger" and must_be_offline(Path("runs"))
    faults = ["W&B works offline: no key, or no way to it"] * offline
    return fail_if(faults, "Run wandb login; or set WANDB_MODE=offline and upload later by wandb sync.", kind, "warn")
