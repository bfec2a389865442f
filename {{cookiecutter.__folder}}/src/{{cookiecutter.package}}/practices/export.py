"""Export to ONNX, and proof that the file computes what the checkpoint computes.

The file holds everything up to the logits, normalisation included, in float32, with a free batch
size (and whatever else the module leaves free), and carries in its metadata what is needed to feed it.
"""

import json
import subprocess
import warnings
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from torch import Tensor

from .base_module import BaseModule
from .errors import UserError

TOLERANCE = 1e-4  # of the largest output: float32 sums in another order differ by a tenth of this


def export_onnx(module: BaseModule, hyper_parameters: dict[str, Any], batch: dict[str, Any], path: Path) -> float:
    """Write `module` to `path` and compare it with torch on `batch`, at two sizes of every free axis.

    Args:
        module: Freshly loaded, float32, on the CPU.
        hyper_parameters: What it was made with, plain values, for the metadata.
        batch: A real batch of at least two samples of the data.
        path: Where the ONNX file goes; replaced only by a file that passed.

    Returns:
        The largest difference between the two, as a share of the largest output.

    Raises:
        UserError: The difference is above `TOLERANCE`, or the outputs are constant and prove nothing.
    """
    module.eval()  # the exporter keeps Dropout and batch statistics of a module in training
    inputs = module.example_inputs(batch)
    temporary = path.with_suffix(".tmp")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of the exporter's own internals
        program = torch.onnx.export(
            module,
            kwargs=inputs,
            dynamo=True,
            input_names=list(inputs),
            output_names=[module.output_name],
            dynamic_shapes=dict.fromkeys(inputs, module.dynamic_axes),
            verbose=False,
        )
    assert program is not None
    try:
        program.model.metadata_props.update(metadata(module, hyper_parameters, inputs))
        program.save(temporary, external_data=False)  # one file: weights beside it get lost
        small = {name: value[(slice(2),) * len(module.dynamic_axes)] for name, value in inputs.items()}
        difference = max(compare(module, temporary, part) for part in (small, inputs))
        if not difference <= TOLERANCE:
            raise UserError(f"the ONNX file differs from the model by {difference:.1e} (allowed: {TOLERANCE:.0e}).")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return difference


def compare(module: BaseModule, path: Path, inputs: dict[str, Tensor]) -> float:
    """Return the largest relative difference between ONNX Runtime and torch on `inputs`."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (actual,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
    with torch.no_grad():
        expected = module(**inputs).numpy()
    # Two samples may well be alike where a free axis was cut to its first two entries.
    if np.ptp(expected, axis=0).max() == 0 and len(expected) > 2:
        raise UserError("the model gives the same output for different inputs, so its export cannot be checked.")
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def metadata(module: BaseModule, hyper_parameters: dict[str, Any], inputs: dict[str, Tensor]) -> dict[str, str]:
    """Return what whoever runs the file must know, as strings."""
    axes = module.dynamic_axes
    shapes = {name: [axes.get(i, n) for i, n in enumerate(value.shape)] for name, value in inputs.items()}
    facts = {
        "inputs": shapes,
        "hyper_parameters": {k: v for k, v in hyper_parameters.items() if not k.startswith("_")},
        "class_names": getattr(module, "class_names", None),
        "input_range": module.input_range,
        "torch": torch.__version__,
        "lightning": lightning.__version__,
        "git_commit": git_commit(),
    }
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in facts.items()}


def git_commit() -> str:
    """Return the commit of the project's own code, with `+` when files differ from it, or `unknown`."""
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
