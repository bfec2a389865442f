"""Checks of learning: targets, where a loss starts, where gradients go, whether a batch can be learnt by heart."""

import itertools
import math

import torch

from .project import SPLITS, Project, Result, Skip, check, fail_if


@check
def labels(project: Project) -> Result:
    """Every label has an output of the network, and no class is missing or rare in training."""
    if not (classes := project.classes):
        raise Skip("targets are numbers, not classes")
    counts = {split: seen.counts[project.target] for split, seen in project.seen.items()}
    ignored = {getattr(layer, "ignore_index", None) for layer in project.module.modules()}
    faults = [f"label {label} in {split}" for split in SPLITS for label in counts[split]
              if label not in ignored and not 0 <= label < classes]  # fmt: skip
    names = getattr(project.module, "class_names", None) or [str(label) for label in range(classes)]
    faults += [f"{len(names)} class names"] if len(names) != classes else []
    if faults:
        return fail_if(faults, f"The network has {classes} outputs, so labels must be 0 to {classes - 1}.", "")
    numbers = [counts["train"][label] for label in range(classes)]
    least, most = min(numbers), max(numbers)
    figure = " to ".join(f"{names[numbers.index(n)]} {n / max(1, sum(numbers)):.1%}" for n in (least, most))
    # Of pixels most are background; what matters is that each class is seen.
    rare = least * 1000 < sum(numbers) if sum(numbers) > project.seen["train"].looked else least * 10 < most
    remedy = "Add samples of it; judge by macro F1; try data.weighted_sampling or a loss that weights classes."
    if rare and not project.data.weighted_sampling:
        return Result("warn" if least else "fail", f"{figure} of training", remedy)
    return Result("pass", f"{classes} classes: {figure} of training")


@check
def gradients(project: Project) -> Result:
    """Every trainable parameter gets a gradient in every step, and no frozen one does."""
    module = project.fresh()
    trained = {name: p.requires_grad for name, p in module.named_parameters()}
    found: dict[str, list[float | None]] = {name: [] for name in trained}
    for _ in project.steps(module, itertools.islice(itertools.cycle(project.batches), 3), 1e-3, 9.0):
        for name, p in module.named_parameters():
            found[name].append(None if p.grad is None else float(p.grad.abs().max()))
    faults = [f"{name} gets {'none' if None in seen else 'only zeros'}" for name, seen in found.items()
              if trained[name] and (None in seen or not any(seen))]  # fmt: skip
    faults += [f"frozen {name} gets one" for name, seen in found.items() if not trained[name] and any(seen)]
    remedy = (
        "Use it in the loss, freeze it by requires_grad_(False) or remove it: it never learns, and DDP stops at it."
    )
    return fail_if(faults, remedy, f"{sum(trained.values())} of {len(trained)} parameters are trained, and reached")


@check
def start_loss(project: Project) -> Result:
    """Before training the loss is that of guessing."""
    batch, classes = project.batches[0], project.classes
    with torch.no_grad():
        loss = float(project.loss(project.fresh(), batch))
        constants = {0.0} if classes else {0.0, float(batch[project.target].double().mean())}
        chance = min(guess(project, value) for value in constants)
    known = f"ln {classes} is {math.log(classes):.3f}" if classes else "the best constant"
    figure = f"{loss:.3f}, guessing gives {chance:.3f} ({known})"
    if not math.isfinite(loss):
        return Result("fail", figure, "Look for the logarithm of zero or a division by it in the loss.")
    if loss > max(2 * chance, chance + 0.5):
        return Result("warn", figure, "Scale inputs and target to about 1 inside the module, and last weights down.")
    if loss < chance / 2:
        return Result("warn", figure, "Right with loaded weights; without, look whether inputs hold the target.")
    return Result("pass", figure)


def guess(project: Project, value: float) -> float:
    """Return the loss of a network whose outputs all are `value`."""
    module = project.fresh()
    hook = module.network.register_forward_hook(lambda layer, inputs, output: torch.full_like(output, value))
    loss = float(project.loss(module, project.batches[0]))
    hook.remove()
    return loss


@check
def one_batch_by_heart(project: Project) -> Result:
    """One batch can be learnt by heart."""
    rate = project.module.learning_rate
    figure, learnt = learn(project, rate)
    for other in () if learnt else (rate / 10, 1e-3):
        instead, better = learn(project, other)
        if better:
            return Result("fail", figure, f"Set model.learning_rate near {other:g}: with it {instead}.")
    remedy = "Do the labels fit (see the drawn samples)? Does the loss use the outputs, with the right sign?"
    return fail_if([] if learnt else [figure], remedy, figure)


def learn(project: Project, rate: float) -> tuple[str, bool]:
    """Return how the loss on up to 32 samples fell in up to 60 steps at `rate`, and whether that is enough."""
    batch = {name: value[:32] for name, value in project.batches[0].items()}
    losses = list(project.steps(project.fresh(), itertools.repeat(batch, 60), rate, 5.0))
    first, last = losses[0], min(losses[-3:])
    needed = 0.3 if len(losses) > 20 else 0.02  # a large network has no time for more
    return f"the loss goes from {first:.3f} to {last:.3f} in {len(losses)} steps", first - last > needed * abs(first)
