"""Checks of the module: shapes, devices, modes, independence, gradients, and whether it learns."""

import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import torch
from lightning.pytorch.utilities.model_summary.model_summary import ModelSummary
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import TorchDispatchMode
from torchmetrics import Metric

from .project import SPLITS, Project, Result, Skip, check, fail_if, head


@check
def layer_shapes(project: Project) -> Result:
    """Shapes fit from layer to layer, and there is an output for each sample."""
    module, entered, hooks = project.fresh(), ["forward"], []
    for name, layer in module.named_modules():
        hooks.append(layer.register_forward_pre_hook(lambda *_, name=name: entered.append(f"layer {name}")))
    module.trainer, module.example_input_array = None, project.inputs  # else the summary asks for a running fit
    try:
        (project.folder / "layers.txt").write_text(f"{ModelSummary(module, max_depth=-1)}\n", encoding="utf-8")
        project.outputs = project.fresh().eval()(**project.inputs).detach()
    except Exception as error:
        raise RuntimeError(f"in {entered[-1]}: {error}") from error
    shapes, output = [tuple(value.shape) for value in project.inputs.values()], tuple(project.outputs.shape)
    faults = [f"{shape} goes in, {output} comes out" for shape in shapes if shape[:1] != output[:1]]
    remedy = "Keep the batch as first dimension: flatten(1), reshape(len(x), -1)."
    figure = f"{', '.join(map(str, shapes))} to {output}; all layers in {project.folder / 'layers.txt'}"
    return fail_if(faults, remedy, figure)


@check
def labels(project: Project) -> Result:
    """Every label has an output of the network, and no class is missing or rare in training."""
    if not (classes := project.classes):
        raise Skip("targets are numbers, not classes")
    counts = {split: project.seen[split].counts[project.target] for split in SPLITS}
    # -100 is what torch's cross-entropy leaves out unless it is told another label.
    known = {*range(classes), -100, *(getattr(layer, "ignore_index", None) for layer in project.module.modules())}
    names = getattr(project.module, "class_names", None) or [str(label) for label in range(classes)]
    faults = [f"label {label} in {split}" for split in SPLITS for label in sorted({*counts[split]} - known)]
    faults += [f"{len(names)} class names"] if len(names) != classes else []
    if faults:
        return fail_if(faults, f"The network has {classes} outputs, so labels must be 0 to {classes - 1}.", "")
    numbers = [counts["train"][label] for label in range(classes)]
    least, most, total = min(numbers), max(numbers), max(1, sum(numbers))
    figure = " to ".join(f"{names[numbers.index(n)]!r} {n / total:.1%}" for n in (least, most))
    # Of pixels most are background; what matters is that each class is seen.
    seen = project.seen["train"]
    rare = least * 1000 < total if total > seen.looked else least * 10 < most
    remedy = "Add samples of it; judge by macro F1; try data.weighted_sampling or a loss that weights classes."
    few = [f"{figure} of training"] if rare and not project.data.weighted_sampling else []
    state: Literal["warn", "fail"] = "warn" if least or seen.looked < seen.total else "fail"
    return fail_if(few, remedy, f"{classes} classes: {figure} of training", state)


@check
def devices_and_types(project: Project) -> Result:
    """All tensors move with the module, and have one type."""
    module = project.fresh()
    faults = [f"{name} is a plain {type(value).__name__}" for name, value in held(module)]
    floats = [(n, t) for n, t in [*module.named_parameters(), *module.named_buffers()] if t.is_floating_point()]
    types = {t.dtype for _, t in floats}
    faults += [f"{name} is float64" for name, t in floats if t.dtype is torch.float64 and len(types) > 1]
    if types == {torch.float32} != {project.outputs.dtype}:
        faults.append(f"outputs are {project.outputs.dtype}")
    try:  # the meta device stands for any that is not the CPU
        project.fresh().eval().to("meta")(**{name: value.to("meta") for name, value in project.inputs.items()})
    except (NotImplementedError, RuntimeError) as error:
        # Where forward looks at values, which that device has none of, nothing can be said.
        text = str(error).splitlines()[0]
        faults += [f"forward makes a tensor on the CPU ({text})"] if "meta tensor" not in str(error) else []
    remedy = "Use register_buffer for tensors, ModuleList for layers, device=x.device in forward, .float() at its end."
    figure = f"{' and '.join(sorted(map(str, types)))}, to be on {project.trainer.strategy.root_device}"
    return fail_if(faults, remedy, figure)


def held(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each tensor or layer that `module` holds unregistered."""
    registered = {id(one) for one in [*module.modules(), *module.parameters(), *module.buffers()]}
    for name, layer in module.named_modules():
        for attribute, value in {} if isinstance(layer, Metric) else vars(layer).items():
            values = list(value.values()) if isinstance(value, dict) else value
            for one in values if isinstance(values, list | tuple) else [values]:
                if isinstance(one, Tensor | nn.Module) and id(one) not in registered:
                    yield f"{name}.{attribute}".lstrip("."), one


@check
def modes(project: Project) -> Result:
    """Dropout and BatchNorm train in training and are still in evaluation."""
    module = project.fresh()
    layers = {n: layer for n, layer in module.named_modules() if isinstance(layer, (_BatchNorm, _DropoutNd))}
    frozen = {n for n, layer in layers.items() if {p.requires_grad for p in layer.parameters()} == {False}}
    faults = [f"{n} evaluates while training" for n, layer in layers.items() if not layer.training and n not in frozen]
    faults += [f"frozen {n} still changes its statistics" for n in frozen if layers[n].training]
    module.eval()
    faults += [f"{n} trains while evaluating" for n, layer in layers.items() if layer.training]
    remedy = "Call train() on what learns, eval() on frozen BatchNorm, and leave eval() to Lightning."
    return fail_if(faults, remedy, f"{len(layers)} such layers")


@check
def evaluation_repeats(project: Project) -> Result:
    """Evaluating twice gives the same and changes nothing."""
    module, before = project.fresh().eval(), project.fresh().state_dict()
    with torch.no_grad():
        first, second = (module(**project.inputs) for _ in range(2))
    faults = [f"{name} changed" for name, value in module.state_dict().items() if not torch.equal(value, before[name])]
    faults += [] if torch.equal(first, second) else [f"outputs differ by {float((first - second).abs().max()):.1e}"]
    remedy = "Use nn.Dropout, or F.dropout with training=self.training, and change buffers only while training."
    return fail_if(faults, remedy, "equal to the bit")


@check
def batch_independence(project: Project) -> Result:
    """In evaluation no sample's output depends on the other samples."""
    module, inputs = revive(project.fresh()).eval(), project.inputs
    with torch.no_grad():
        among_others = module(**inputs)[0]
        alike = module(**{name: value[:1].expand_as(value).contiguous() for name, value in inputs.items()})[0]
    difference = float((among_others - alike).abs().max() / among_others.abs().max().clamp(min=1e-6))
    figure = f"other neighbours change an output by {difference:.1%}"
    remedy = "Reduce over features, not over the batch: name dim=1 or more, with keepdim=True."
    return fail_if([] if difference < 1e-3 else [figure], remedy, figure)


def revive(module: Any) -> Any:
    """Give parameters that start at zero small values: outputs that are all zero would prove nothing."""
    for parameter in module.parameters():
        if not parameter.any():
            parameter.data.normal_(std=0.02)
    return module


class Pairs(TorchDispatchMode):
    """Note the operations that make (size, size) of nothing but (size,) and (size, 1)."""

    def __init__(self, size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.size, self.found = size, set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, n = func(*args, **(kwargs or {})), self.size
        shapes = {tuple(one.shape) for one in args if isinstance(one, Tensor)}
        if isinstance(result, Tensor) and result.shape == (n, n) and shapes and shapes <= {(n,), (n, 1), (1, n), ()}:
            self.found.add(str(func).split(".")[1])
        return result


@check
def broadcasting(project: Project) -> Result:
    """Loss and metrics compare each output with its own target, not with all."""
    taken = {size for tensor in (*project.inputs.values(), project.outputs) for size in tensor.shape[1:]}
    count = next((n for n in (7, 5, 11, 13, 6, 3, 2) if n not in taken and n <= len(project.outputs)), 0)
    if not count:
        raise Skip("too few samples")
    batch, module = head(project.batches[0], count), project.fresh()
    with warnings.catch_warnings(record=True) as caught, Pairs(count) as pairs, torch.no_grad():
        warnings.simplefilter("always")
        project.loss(module, batch)
        module.eval().validation_step(batch, 0)
    faults = [str(w.message).split(". ")[0] for w in caught if "target size" in str(w.message)]
    faults += [f"{name} compares {count} samples with {count}" for name in sorted(pairs.found) if not faults]
    remedy = "Give both one shape: outputs.squeeze(1) for targets (N,), or targets.unsqueeze(1) for outputs (N, 1)."
    return fail_if(faults, remedy, f"{count} samples give {count} comparisons")


@check
def gradients(project: Project) -> Result:
    """Every trainable parameter gets a gradient in every step, and no frozen one does."""
    module = project.fresh()
    trained = {name: p.requires_grad for name, p in module.named_parameters()}
    found: dict[str, list[float | None]] = {name: [] for name in trained}
    for _ in project.steps(module, itertools.islice(itertools.cycle(project.batches), 3), 1e-3, 9.0):
        for name, p in module.named_parameters():
            found[name].append(None if p.grad is None else float(p.grad.abs().max()))
    faults = [f"frozen {name} gets one" for name, seen in found.items() if not trained[name] and any(seen)]
    for name in (name for name, seen in found.items() if trained[name] and (None in seen or not any(seen))):
        faults.append(f"{name} gets {'none' if None in found[name] else 'only zeros'}")
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
    low = [figure] if loss < chance / 2 else []
    return fail_if(low, "Right with loaded weights; without, look whether inputs hold the target.", figure, "warn")


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
    if "nan" in figure:
        return Result(
            "fail", figure, "Numbers grow too large: set trainer.precision 32-true, or a lower learning rate."
        )
    remedy = "Do the labels fit (see the drawn samples)? Does the loss use the outputs, with the right sign?"
    return fail_if([] if learnt else [figure], remedy, figure)


def learn(project: Project, rate: float) -> tuple[str, bool]:
    """Return how the loss on up to 16 samples fell in up to 60 steps at `rate`, and whether that is enough."""
    batch = head(project.batches[0], 16)
    losses = list(project.steps(project.fresh(), itertools.repeat(batch, 60), rate, 6.0))
    if len(losses) < 4:
        raise Skip(f"{len(losses)} steps in 6 s are too few to tell: look where it is faster")
    first, last = losses[0], min(losses[-3:])
    needed = 0.3 if len(losses) > 20 else 0.02  # a large network has no time for more
    return f"the loss goes from {first:.3f} to {last:.3f} in {len(losses)} steps", first - last > needed * abs(first)
