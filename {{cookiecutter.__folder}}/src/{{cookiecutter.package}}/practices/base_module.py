"""What every task's module shares: optimizer, schedule, compilation, and a checkpoint that must fit."""

from typing import Any, ClassVar

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn

from .errors import UserError
from .schedules import warmup_cosine


class BaseModule(LightningModule):
    """Train `self.network`, which a subclass sets; see the task's module.

    Args:
        learning_rate: Peak of the learning rate.
        weight_decay: AdamW's, on weights alone: biases and normalisations are too few to overfit.
        warmup_share: Share of all steps in which the learning rate rises from zero.
        compile_network: Compile on the first step; pays only when training is long enough to notice.
    """

    network: nn.Module
    # Of the exported file: its output's name, what its inputs must look like, and its free axes.
    output_name: ClassVar[str] = "logits"
    input_range: ClassVar[str] = ""
    dynamic_axes: ClassVar[dict[int, str]] = {0: "batch"}

    def __init__(
        self,
        learning_rate: float = 3e-3,
        weight_decay: float = 0.01,
        warmup_share: float = 0.05,
        compile_network: bool = False,
    ) -> None:
        super().__init__()
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.warmup_share, self.compile_network = warmup_share, compile_network

    def example_inputs(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """Return the arguments of `forward`, by name, that `batch` holds; the export traces with them."""
        raise NotImplementedError(f"{type(self).__name__} must define example_inputs(batch).")

    def configure_model(self) -> None:
        """Compile in place: torch.compile(network) would wrap it and rename every key of a checkpoint."""
        if self.compile_network:
            self.network.compile()

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Return AdamW over what is trained, and warmup then cosine per step.

        Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019.
        """
        trained = [p for p in self.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in trained if p.ndim > 1], "weight_decay": self.weight_decay},
            {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
        ]
        # One kernel for all parameters; but it unscales gradients itself, which float16 clipping forbids.
        fused = self.device.type in ("cpu", "cuda") and self.trainer.precision != "16-mixed"
        optimizer = torch.optim.AdamW(groups, lr=self.learning_rate, fused=fused)
        total_steps = int(self.trainer.estimated_stepping_batches)
        schedule = warmup_cosine(optimizer, round(self.warmup_share * total_steps), total_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse weights of another network by name, before any is copied.

        Raises:
            UserError: A key is missing, unknown, or of another shape.
        """
        own, loaded = self.state_dict(), checkpoint["state_dict"]
        faults = [f"{key} is missing" for key in own if key not in loaded]
        faults += [f"{key} is unknown here" for key in loaded if key not in own]
        faults += [
            f"{key} is {tuple(loaded[key].shape)} there and {tuple(own[key].shape)} here"
            for key in own
            if key in loaded and loaded[key].shape != own[key].shape
        ]
        if faults:
            more = f" and {len(faults) - 2} more" if len(faults) > 2 else ""
            raise UserError(
                f"the checkpoint is of another network than the configured one: {'; '.join(faults[:2])}{more}; "
                "give the --model.network that it was trained with."
            )
