"""Checks of what leaves training: the checkpoint and the ONNX file. They come last, as they take longest."""

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...practices.export import export_onnx
from .model import revive
from .project import Project, Result, Skip, check, eager, fail_if


@check
def contiguous_views(project: Project) -> Result:
    """Inputs lie in memory as they are read, and the output does not depend on how they lie."""
    inputs, module = project.inputs, revive(project.fresh()).eval()
    faults = [f"{name} has strides {value.stride()}" for name, value in inputs.items() if not value.is_contiguous()]
    turned = {name: value.transpose(0, -1).contiguous().transpose(0, -1) for name, value in inputs.items()}
    try:
        close = torch.allclose(module(**inputs), module(**turned), rtol=1e-3, atol=1e-3)
        faults += [] if close else ["the output depends on the layout"]
    except RuntimeError as error:
        faults.append(f"forward fails on a view ({str(error).splitlines()[0]})")
    remedy = "End example_inputs in .contiguous(), and write reshape for view: exporters take memory as it lies."
    return fail_if(faults, remedy, "contiguous, and free to be otherwise")


@check
def checkpoint(project: Project) -> Result:
    """A checkpoint loads without running code and gives the same outputs."""
    module = revive(project.fresh().float())
    with tempfile.TemporaryDirectory(dir=project.folder) as folder:
        path = Path(folder, "model.ckpt")
        project.trainer.strategy.connect(module)
        project.trainer.save_checkpoint(path)
        loaded = type(project.module).load_from_checkpoint(path, map_location="cpu", weights_only=True)
        inputs, size = plain(project.inputs), path.stat().st_size / 1e6
    same = torch.equal(eager(loaded).eval()(**inputs), module.cpu().eval()(**inputs))
    remedy = "Call save_hyperparameters(), and keep what forward needs in parameters and buffers."
    return fail_if([] if same else ["loaded, it gives other outputs"], remedy, f"{size:.1f} MB, equal to the bit")


@check
def onnx_export(project: Project) -> Result:
    """The ONNX file computes what the module computes."""
    if not project.cli.config.export_onnx:
        raise Skip("export_onnx is false")
    with tempfile.TemporaryDirectory(dir=project.folder) as folder:
        path, module = Path(folder, "model.onnx"), revive(project.fresh().float().cpu())
        difference = export_onnx(module, dict(project.module.hparams), plain(project.batches[0]), path)
        return Result("pass", f"{path.stat().st_size / 1e6:.1f} MB, differs by {difference:.0e} of the largest output")


def plain(batch: dict[str, Any]) -> dict[str, Any]:
    """Return `batch` on the CPU, in float32."""
    moved = {name: value.cpu() if isinstance(value, Tensor) else value for name, value in batch.items()}
    return {n: v.float() if isinstance(v, Tensor) and v.is_floating_point() else v for n, v in moved.items()}
