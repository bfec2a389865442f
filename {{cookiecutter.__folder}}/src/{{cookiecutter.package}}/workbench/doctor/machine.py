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
from .project import Project, Result, check


@check
def devices(project: Project) -> Result:
    """The devices that are there are used."""
    trainer, asked = project.trainer, project.cli.config.trainer
    device, count = trainer.strategy.root_device, trainer.world_size
    figure = (
        f"{count} x {device.type} (asked for {asked.devices} x {asked.accelerator}), {type(trainer.strategy).__name__}"
    )
    if device.type == "cpu" and torch.accelerator.is_available():
        return Result("warn", figure, "A GPU is idle: set trainer.accelerator auto.")
    if device.type == "cpu" and count > usable_cpus():
        return Result("warn", figure, f"Set trainer.devices to at most {usable_cpus()}, the CPUs that may be used.")
    return Result("pass", figure)


@check
def precision(project: Project) -> Result:
    """A step in the chosen precision gives the loss of float32, and runs can be repeated."""
    trainer, asked = project.trainer, project.cli.config.trainer
    figure, losses, batch = f"{trainer.precision}, deterministic {asked.deterministic}", [], project.batches[0]
    for chosen in (True, False):
        torch.manual_seed(0)  # for Dropout
        module: Any = project.fresh() if chosen else project.fresh().float()
        losses.append(float(project.loss(module, batch) if chosen else module.training_step(batch, 0)))
    if not abs(losses[0] - losses[1]) <= 0.05 * abs(losses[1]):
        remedy = "Set trainer.precision 32-true, or bf16-mixed, which has float32's range."
        return Result("fail", f"{figure}: loss {losses[0]:.4g}, in float32 {losses[1]:.4g}", remedy)
    if str(trainer.precision) != str(asked.precision):
        return Result("warn", f"{figure}, asked for {asked.precision}", f"Set trainer.precision {trainer.precision}.")
    if not asked.deterministic:
        return Result("warn", figure, "Two runs will differ: set trainer.deterministic true, or warn.")
    return Result("pass", figure)


@check
def batch_size(project: Project) -> Result:
    """An epoch has steps, and validation enough samples to measure."""
    train, val = (len(project.data.dataset(split)) for split in ("train", "val"))
    whole = project.data.batch_size * project.trainer.world_size * project.trainer.accumulate_grad_batches
    figure = f"{train:,} training samples are {train / whole:.1f} steps of {whole}; {val:,} to validate"
    if 3 * whole > train:
        state: Any = "fail" if whole > train else "warn"
        return Result(state, figure, f"Set data.batch_size to about {max(2, train // 10)}: an epoch needs steps.")
    if val < 30:
        return Result("warn", figure, f"One sample is {1 / val:.0%} of a metric: validate on more, or use fit --folds.")
    return Result("pass", figure)


@check
def loader_speed(project: Project) -> Result:
    """Steps do not wait for data."""
    rate, count, cpus = project.module.learning_rate, project.data.num_workers, usable_cpus()
    step = pace(project.steps(project.fresh(), itertools.cycle(project.batches), rate, 3.0))
    load = pace(iter(loader(project, 0)))
    waits = max(0.0, load / count - step) if count else load
    steps = len(project.data.dataset("train")) / project.data.batch_size * max(1, project.trainer.max_epochs or 1)
    figure = f"step {step * 1e3:.0f} ms, {load * 1e3:.0f} ms to load a batch, {max(1, count)} process(es) for it: "
    figure += f"waiting costs {waits * steps / 60:.1f} of {(waits + step) * steps / 60:.1f} minutes"
    if waits < step / 3 or waits * steps < 60:
        return Result("pass", figure)
    needed = math.ceil(load / step)
    many = f"{needed} CPUs would end it, {cpus} may be used: use a cache, smaller samples, fewer changes of them."
    return Result("warn", figure, f"Set data.num_workers {needed}." if needed < cpus else many)


def pace(things: Iterator[Any], seconds: float = 3.0) -> float:
    """Return the median of the seconds that each of `things` takes, without the first, which starts it."""
    times: list[float] = []
    begin = time.monotonic()
    for _ in itertools.islice(things, 12):
        times.append(-begin + (begin := time.monotonic()))
        if sum(times) > seconds:
            break
    return sorted(times[1:] or times)[len(times[1:]) // 2]


@check
def memory(project: Project) -> Result:
    """A step fits into memory."""
    module, device, kept = project.fresh(), project.trainer.strategy.root_device, dict[int, int]()

    def keep(value: Tensor) -> Tensor:
        kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        loss = project.loss(module, project.batches[0])  # kept, so that no memory is used twice
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    weights = sum(p.nbytes * (4 if p.requires_grad else 1) for p in module.parameters())  # gradient, AdamW's two
    sample = sum(size for place, size in kept.items() if place not in own) / project.data.batch_size
    free = torch.cuda.mem_get_info(device)[0] if loss.is_cuda else psutil.virtual_memory().available
    room = int(0.7 * (free - weights) / max(sample, 1))  # the rest is for kernels and fragments
    fit = f"{room:,}" if room < len(project.data.dataset("train")) else "all"
    figure = f"weights {size(weights)}, a sample {size(sample)}, free {size(free)}: {fit} samples fit into a step"
    remedy = "Lower data.batch_size and raise trainer.accumulate_grad_batches, or use model.gradient_checkpointing."
    return Result("pass", figure) if room >= project.data.batch_size else Result("fail", figure, remedy)


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
    state: Any = "fail" if needed > free else "warn" if 10 * needed > free else "pass"
    return Result(state, figure, "" if state == "pass" else "Free some space: a full disk ends the run.")


@check
def logger(project: Project) -> Result:
    """What is logged arrives."""
    chosen = project.cli.config.trainer.logger
    kind = chosen.class_path.rsplit(".", 1)[-1] if chosen and chosen is not True else "metrics.csv alone"
    package = {"WandbLogger": "wandb", "TensorBoardLogger": "tensorboard"}.get(kind)
    if package and not importlib.util.find_spec(package):
        return Result("fail", f"{kind} needs {package}, which is not installed", f"pip install {package}")
    if kind == "WandbLogger" and (chosen.init_args.offline or os.environ.get("WANDB_MODE") == "offline"):
        return Result("pass", "W&B offline, as chosen; upload later by wandb sync")
    if kind == "WandbLogger" and must_be_offline(Path("runs/RUN")):
        remedy = "Run wandb login; or set WANDB_MODE=offline and upload later by wandb sync."
        return Result("warn", "W&B has no key or cannot be reached, so it works offline", remedy)
    return Result("pass", kind)
