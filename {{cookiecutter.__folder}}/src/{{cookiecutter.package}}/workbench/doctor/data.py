"""Checks of the data: what is read, what is predicted, and what of one split is known to another."""

import hashlib
import itertools
import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric.utilities import move_data_to_device
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from ...mistakes import explain
from ...runs import unused
from .project import SPLITS, WAITS, Project, Result, Seen, Skip, check, fail_if

TARGETS = ("label", "labels", "target", "targets", "mask", "y")  # looked for in this order


@check
def configuration(project: Project) -> Result:
    """Data module, module and trainer can be made."""
    cli = project.cli = project.build()
    cli.datamodule.prepare_data()
    project.data, project.module, project.trainer = cli.datamodule, cli.model, cli.trainer
    names = [type(part).__name__ for part in (cli.datamodule, cli.model, cli.model.network)]
    return Result("pass", f"{', '.join(names)}: {sum(p.numel() for p in cli.model.parameters()):,} parameters")


@check
def files_decode(project: Project) -> Result:
    """Every image file can be decoded."""
    known, end, faults, looked = Image.registered_extensions(), time.monotonic() + project.seconds, [], 0
    paths = [name for split in SPLITS for name in project.data.sample_ids(split) if Path(name).suffix.lower() in known]
    if not paths:
        raise Skip("the samples are no image files")
    for path in itertools.takewhile(lambda _: time.monotonic() < end, paths):
        looked += 1
        try:
            Image.open(path).load()
        except Exception as error:
            faults.append(f"{path} ({str(error).splitlines()[0]})")
    return fail_if(faults, "Repair these files or remove them.", f"{looked:,} of {len(paths):,} files")


@check
def samples_read(project: Project) -> Result:
    """Every sample of every split can be read."""
    for stage in ("fit", "test"):
        project.data.setup(stage)
    sizes = {split: len(project.data.dataset(split)) for split in SPLITS}
    whole = max(1, sum(sizes.values()))
    project.seen = {s: look(project, s, max(0.5, project.seconds * sizes[s] / whole)) for s in SPLITS}
    faults = [error for seen in project.seen.values() for error in seen.errors]
    figure = ", ".join(f"{seen.looked:,} of {seen.total:,} {split}" for split, seen in project.seen.items())
    return fail_if(faults, "Mend what the dataset's __getitem__ or the collate function does.", figure)


def look(project: Project, split: Any, seconds: float) -> Seen:
    """Look at the samples of `split` in random order for at most `seconds`."""
    loader: Any = project.data.loader(split)
    ids, seen, end = project.data.sample_ids(split), Seen(len(loader.dataset)), time.monotonic() + seconds
    order = torch.randperm(seen.total, generator=torch.Generator().manual_seed(0)).tolist()
    for index in itertools.takewhile(lambda _: time.monotonic() < end, order):
        seen.looked += 1
        try:
            batch, content = loader.collate_fn([loader.dataset[0, index]]), hashlib.blake2b(digest_size=12)
            inputs = project.module.example_inputs(batch)
            for name, value in tensors({**batch, **inputs}).items():
                numbers = count(seen, name, value, ids[index])
                content.update(f"{numbers.shape}".encode() + numbers.tobytes() if name in inputs else b"")
            seen.contents[ids[index]] = content.digest()
        except Exception as error:
            seen.errors.append(f"{ids[index]}: {explain(error) or f'{type(error).__name__}: {error}'}")
    return seen


def count(seen: Seen, name: str, value: Tensor, sample: str) -> Any:
    """Count what entry `name` of `sample` holds in; return it as an array."""
    numbers = value.detach().double().numpy()
    seen.types.setdefault(name, set()).add(value.dtype)
    if not value.is_floating_point():
        whole = (part.tolist() for part in np.unique(numbers.astype(int), return_counts=True))
        seen.counts.setdefault(name, Counter()).update(dict(zip(*whole, strict=True)))
    if not np.isfinite(numbers).all():
        seen.not_finite.append(f"{name} of {sample}")
    elif numbers.size:
        low, high = seen.ranges.get(name, (math.inf, -math.inf))
        seen.ranges[name] = min(low, float(numbers.min())), max(high, float(numbers.max()))
    return numbers


def tensors(sample: dict[str, Any]) -> dict[str, Tensor]:
    """Return the entries that are tensors."""
    return {name: value for name, value in sample.items() if isinstance(value, Tensor)}


@check
def finite_numbers(project: Project) -> Result:
    """No sample holds NaN or infinity."""
    faults = [fault for seen in project.seen.values() for fault in seen.not_finite]
    figure = f"{sum(seen.looked for seen in project.seen.values()):,} samples"
    return fail_if(faults, "Mend these samples or leave them out: one NaN makes all weights NaN.", figure)


@check
def batches(project: Project) -> Result:
    """Samples make batches, with something to predict, of one type and range in all splits."""
    if any(seen.errors for seen in project.seen.values()):
        raise Skip(WAITS)
    device, convert = project.trainer.strategy.root_device, project.trainer.precision_plugin.convert_input
    found = [convert(move_data_to_device(batch, device)) for batch in itertools.islice(loader(project, 0), 3)]
    project.batches = [project.data.on_after_batch_transfer(batch, 0) for batch in found]
    inputs, batch = project.module.example_inputs(project.batches[0]), tensors(project.batches[0])
    others = [n for n, v in batch.items() if n not in inputs and not any(v is value for value in inputs.values())]
    project.inputs, project.target = inputs, next((n for n in (*TARGETS, *others) if n in others), "")
    figures, faults, hints = [], [] if project.target else ["there is nothing to predict"], []
    for name in [*inputs, project.target] if project.target else inputs:
        types = set().union(*(seen.types.get(name, set()) for seen in project.seen.values()))
        ranges = [seen.ranges.get(name, (0.0, 0.0)) for seen in project.seen.values()]
        figures.append(f"{name} {min(low for low, _ in ranges):.4g} to {max(high for _, high in ranges):.4g}")
        if len(types) > 1 or types & {torch.float64, torch.float16}:
            faults.append(f"{name} is {' and '.join(sorted(map(str, types)))}")
        if name in inputs and inputs[name].ndim > 3 and ranges[0][1] > 20:
            hints.append(f"{figures[-1]}: scale images to 0 to 1")
        if ranges[0][0] == ranges[0][1] and torch.bool not in types:
            hints.append(f"{name} is constant in training")
    remedy = "Return one type in all splits, float32, or int64 for labels and tokens, and values of about 1."
    return fail_if(faults or hints, remedy, "; ".join(figures), "fail" if faults else "warn")


def loader(project: Project, workers: int) -> Any:
    """Return the training loader with `workers` processes, which waits for them for at most ten seconds."""
    own: Any = project.data.loader("train")
    options = {"sampler": own.sampler, "collate_fn": own.collate_fn, "drop_last": own.drop_last}
    return DataLoader(own.dataset, own.batch_size, num_workers=workers, timeout=10 * (workers > 0), **options)


@check
def splits(project: Project) -> Result:
    """Splits share no sample, and are the same whenever they are made."""
    ids = {split: list(project.data.sample_ids(split)) for split in project.seen}
    faults = [f"{split} holds {name} twice" for split in SPLITS for name, n in Counter(ids[split]).items() if n > 1]
    pairs = itertools.combinations(SPLITS, 2)
    faults += [f"{a} and {b} share {name}" for a, b in pairs for name in sorted({*ids[a]} & {*ids[b]})]
    torch.rand(17)  # neither another draw nor another order may move a sample
    other = project.cli._data()
    for stage in ("test", "fit"):
        other.setup(stage)
    faults += [f"{split} differs when made again" for split in SPLITS if list(other.sample_ids(split)) != ids[split]]
    remedy = "Split by something lasting, such as a hash of the name: see the folder reading/."
    return fail_if(faults, remedy, ", ".join(f"{split} {len(names):,}" for split, names in ids.items()))


@check
def duplicates(project: Project) -> Result:
    """No content is in two splits."""
    found, end = dict[bytes, dict[str, str]](), time.monotonic() + project.seconds
    for split, seen in project.seen.items():
        for name, content in seen.contents.items():
            if Path(name).is_file() and time.monotonic() < end:  # augmentation does not change files
                content = hashlib.blake2b(Path(name).read_bytes()).digest()
            found.setdefault(content, {})[split] = name
    faults = [" = ".join(names.values()) for names in found.values() if len(names) > 1]
    remedy, few = "Keep each content in one split, or what is measured is memory.", 100 * len(faults) < len(found)
    return fail_if(faults, remedy, f"{len(found):,} different contents", "warn" if few else "fail")


@check
def repeatable(project: Project) -> Result:
    """A sample is the same each time, whatever process reads it."""
    count = len(project.batches)
    read = [[tensors(batch) for batch in itertools.islice(loader(project, n), count)] for n in (0, 0, 2)]
    faults = []
    for how, again in (("read twice", read[1]), ("by two workers", read[2])):
        pairs = ((name, one[name], two[name]) for one, two in zip(read[0], again, strict=True) for name in one)
        faults += [f"{name}, {how}" for name, a, b in pairs if not torch.equal(a.nan_to_num(), b.nan_to_num())]
    remedy = "Draw from torch, np.random or random, which are seeded for each sample, and keep no state."
    return fail_if(faults, remedy, f"{count} batches twice, and by two workers")


@check
def sample_grid(project: Project) -> Result:
    """Samples are drawn for you to look at."""
    from matplotlib.figure import Figure

    images = [value[:32].float().cpu() for value in project.inputs.values() if value.ndim == 4]
    if not images or images[0].shape[1] not in (1, 3):
        raise Skip("the inputs are no images")
    names, targets = getattr(project.module, "class_names", None), project.batches[0][project.target].cpu()
    low, high, rows = images[0].min().clamp(max=0), images[0].max().clamp(min=1), math.ceil(len(images[0]) / 8)
    figure = Figure((12, 1.75 * rows), layout="constrained")
    for place, (image, target) in enumerate(zip((images[0] - low) / (high - low), targets, strict=False), 1):
        axes = figure.add_subplot(rows, 8, place)
        axes.imshow(image.permute(1, 2, 0), cmap="gray")
        axes.axis("off")
        if target.ndim == 2:
            axes.imshow(target % 20, alpha=0.5 * (target > 0), cmap="tab20", vmin=0, vmax=19, interpolation="nearest")
        elif target.ndim == 0:
            axes.set_title(names[target] if names and not target.is_floating_point() else f"{float(target):.4g}")
    figure.savefig(path := unused(project.folder / "samples.png"))
    return Result("pass", f"{path}: do the labels fit, is augmentation harmless?")
