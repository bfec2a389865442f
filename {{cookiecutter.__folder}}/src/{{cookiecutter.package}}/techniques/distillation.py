"""Knowledge distillation: a small student learns what a large teacher says of each sample; see configs/distill.yaml.

The student's checkpoint, optimizer and ONNX file hold nothing of the teacher, whose file is read for training alone.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.nn import functional as F

from ..practices.base_module import BaseModule
from ..practices.errors import UserError
from ..practices.pretrained import checkpoint_path, read

Teacher = Callable[[dict[str, Tensor]], Tensor]


class Distillation(Callback):
    """Minimise (1 - weight) loss + weight T² KL(teacher || student), the probabilities softened by a temperature T.

    Softened gradients are smaller by 1 / T², which the factor undoes: `weight` means the same at any temperature.
    Source: Hinton, Vinyals, Dean, Distilling the Knowledge in a Neural Network, 2015.

    Args:
        teacher: A run's folder (its best checkpoint), a checkpoint, or an exported model.onnx.
        temperature: Divides the logits of both: the higher, the more the unlikely classes count.
        weight: Share of the loss that is learnt from the teacher, the rest from the labels.

    Raises:
        UserError: The teacher cannot be read or run, was made for other classes or inputs, or is never asked.
    """

    def __init__(self, teacher: str, temperature: float = 4.0, weight: float = 0.5) -> None:
        if temperature <= 0 or not 0 <= weight <= 1:
            raise UserError("Distillation needs a temperature above 0 and a weight from 0 to 1.")
        self.path = checkpoint_path("teacher of Distillation", teacher)
        self.temperature, self.weight = temperature, weight

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Load the teacher, after everything that copies or saves the student was set up."""
        assert isinstance(pl_module, BaseModule)
        self.module = pl_module
        self.asked = self.trained = False
        session = _session(self.path, pl_module.device) if self.path.suffix == ".onnx" else None
        facts = _facts_of_onnx(session) if session else _facts_of(self.path)
        for name in trainer.datamodule.provides:  # type: ignore[attr-defined]
            if facts.get(name) != pl_module.hparams[name]:
                there, here = _short(facts.get(name)), _short(pl_module.hparams[name])
                raise UserError(f"{name} of the teacher {self.path} is {there}, of the student {here}; take another.")
        self.teacher = partial(_run, session) if session else _load(self.path, pl_module)
        pl_module.objectives.append(self.objective)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *batch: Any) -> None:
        """Know that a step was made; a resumed epoch may have none left."""
        self.trained = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse a module that leaves the teacher out."""
        if self.trained and not self.asked:
            raise UserError("the module's training step does not call self.objective; distillation changes nothing.")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let go of the teacher."""
        self.module.objectives.remove(self.objective)
        del self.teacher

    def objective(self, batch: dict[str, Any], outputs: Tensor, loss: Tensor) -> Tensor:
        """Return what is minimised, a scalar, given the student's logits `outputs`, float (batch, classes)."""
        self.asked = True
        taught = self._taught(self.module.example_inputs(batch)).to(outputs.device)
        distance = distillation_loss(outputs, taught, self.temperature)
        name, size = "train/distillation_loss", len(outputs)
        self.module.log(name, distance.detach(), batch_size=size, on_step=False, on_epoch=True)
        return (1 - self.weight) * loss + self.weight * distance

    def _taught(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the teacher's logits; its numbers are float32 whatever the student's precision."""
        try:
            with torch.no_grad():
                return self.teacher({name: v.float() if v.is_floating_point() else v for name, v in inputs.items()})
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # ONNX Runtime's have no base of their own
            raise UserError(f"the teacher {self.path} cannot take the student's inputs: {_short(error)}") from error


def distillation_loss(logits: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """Return T² KL(teacher || student), a scalar, of `logits` and the teacher's `taught`, float (batch, classes)."""
    student, teacher = (F.log_softmax(one / temperature, dim=1) for one in (logits, taught))
    return F.kl_div(student, teacher, reduction="batchmean", log_target=True) * temperature**2


def _load(path: Path, module: BaseModule) -> Teacher:
    """Return the module in the checkpoint `path`: frozen, in evaluation mode, on the student's device."""
    with torch.random.fork_rng(devices=[]):  # the student's own draws stay as they are without a teacher
        try:
            teacher = type(module).load_from_checkpoint(path, map_location="cpu", weights_only=True)
        except (RuntimeError, TypeError, ValueError, KeyError, AttributeError) as error:
            name = type(module).__name__
            raise UserError(f"the teacher {path} is no checkpoint of {name}: {_short(error)}") from error
    teacher.eval().requires_grad_(False).to(module.device)
    return lambda inputs: teacher(**inputs)


def _session(path: Path, device: torch.device) -> Any:
    """Return what runs the ONNX file, on the student's device where this installation can."""
    import onnxruntime

    if not path.is_file():
        raise UserError(f"the teacher {path} does not exist; give a run's folder or a file that is there.")
    gpu = device.type == "cuda" and "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    providers = [("CUDAExecutionProvider", {"device_id": device.index or 0})] if gpu else []
    try:
        return onnxruntime.InferenceSession(path, providers=[*providers, "CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's have no base of their own
        raise UserError(f"the teacher {path} is no ONNX file that can be run: {_short(error)}") from error


def _facts_of(path: Path) -> Any:
    content = read(path)
    if not isinstance(content, dict) or "hyper_parameters" not in content:
        raise UserError(f"the teacher {path} is no checkpoint of a run; give one, or the run's folder.")
    return content["hyper_parameters"]


def _facts_of_onnx(session: Any) -> Any:
    return json.loads(session.get_modelmeta().custom_metadata_map.get("hyper_parameters", "{}"))


def _run(session: Any, inputs: dict[str, Tensor]) -> Tensor:
    (logits,) = session.run(None, {name: value.cpu().numpy() for name, value in inputs.items()})
    return torch.from_numpy(logits)


def _short(value: Any) -> str:
    text = str(value).strip().partition("\n")[0]
    return text if len(text) <= 80 else f"{text[:77]}..."
