"""Checks of the module: shapes, devices, modes, and that a sample's output is its own."""

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from lightning.pytorch.utilities.model_summary.model_summary import ModelSummary
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import TorchDispatchMode
from torchmetrics import Metric

from .project import Project, Result, check, fail_if


@check
def layer_shapes(project: Project) -> Result:
    """Shapes fit from layer to layer, and there is an output for each sample."""
    module, entered = project.fresh(), ["forward"]
    for name, layer in module.named_modules():
        hook = layer.register_forward_pre_hook(lambda *_, name=name: entered.append(f"layer {name}"))
        del hook  # it goes with the copy
    module.trainer, module.example_input_array = None, project.inputs  # else the summary asks for a running fit
    try:
        summary = ModelSummary(module, max_depth=-1)
        project.outputs = project.fresh().eval()(**project.inputs).detach()
    except Exception as error:
        raise RuntimeError(f"in {entered[-1]}: {error}") from error
    project.folder.mkdir(parents=True, exist_ok=True)
    path = project.folder / "layers.txt"
    path.write_text(f"{summary}\n", encoding="utf-8")
    shapes, output = [tuple(value.shape) for value in project.inputs.values()], tuple(project.outputs.shape)
    faults = [f"{shape} goes in, {output} comes out" for shape in shapes if shape[:1] != output[:1]]
    remedy = "Keep the batch as first dimension: flatten(1), reshape(len(x), -1)."
    return fail_if(faults, remedy, f"{', '.join(map(str, shapes))} to {output}; all layers in {path}")


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
    faults += list(elsewhere(project)) if not faults else []
    remedy = "Use register_buffer for tensors, ModuleList for layers, device=x.device in forward, .float() at its end."
    shown = " and ".join(sorted(map(str, types)))
    return fail_if(faults, remedy, f"{shown}, to be on {project.trainer.strategy.root_device}")


def held(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each tensor or layer that `module` holds unregistered."""
    registered = {id(one) for one in [*module.modules(), *module.parameters(), *module.buffers()]}
    for name, layer in module.named_modules():
        for attribute, value in {} if isinstance(layer, Metric) else vars(layer).items():
            values = list(value.values()) if isinstance(value, dict) else value
            for one in values if isinstance(values, list | tuple) else [values]:
                if isinstance(one, Tensor | nn.Module) and id(one) not in registered:
                    yield f"{name}.{attribute}".lstrip("."), one


def elsewhere(project: Project) -> Iterator[str]:
    """Yield what fails on another device than the CPU; the meta device stands for it."""
    try:
        project.fresh().eval().to("meta")(**{name: value.to("meta") for name, value in project.inputs.items()})
    except (NotImplementedError, RuntimeError) as error:
        if "meta tensor" not in str(error):  # then values are looked at, which this device has none of
            yield f"forward makes a tensor on the CPU ({str(error).splitlines()[0]})"


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
    faults += [] if first.isfinite().all() else ["outputs are not finite"]
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
    faults = [] if difference < 1e-3 else [f"other neighbours change an output by {difference:.1%}"]
    remedy = "Reduce over features, not over the batch: name dim=1 or more, with keepdim=True."
    return fail_if(faults, remedy, f"other neighbours change an output by {difference:.0e} of its size")


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
    count = next(n for n in (7, 5, 11, 13, 6, 3, 2) if n not in taken and n <= len(project.outputs))
    batch, module = {name: value[:count] for name, value in project.batches[0].items()}, project.fresh()
    with warnings.catch_warnings(record=True) as caught, Pairs(count) as pairs, torch.no_grad():
        warnings.simplefilter("always")
        project.loss(module, batch)
        module.eval().validation_step(batch, 0)
    faults = [str(w.message).split(". ")[0] for w in caught if "target size" in str(w.message)]
    faults += [f"{name} compares {count} samples with {count}" for name in sorted(pairs.found) if not faults]
    remedy = "Give both one shape: outputs.squeeze(1) for targets (N,), or targets.unsqueeze(1) for outputs (N, 1)."
    return fail_if(faults, remedy, f"{count} samples give {count} comparisons")
