"""What every task's module shares: optimizer, schedule, finite numbers, memory, a checkpoint that must fit."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from .efficiency import checkpoint_blocks
from .errors import UserError
from .numerics import FiniteCheck
from .schedules import Schedule, make_schedule

Objective = Callable[[dict[str, Any], Tensor, Tensor], Tensor]


class BaseModule(LightningModule):
    """Train `self.network`, which a subclass sets; see the task's module.

    Args:
        learning_rate: Peak of the learning rate.
        weight_decay: AdamW's, on weights alone: biases and normalisations are too few to overfit.
        schedule: How the learning rate goes on from there; plateau follows the monitored metric.
        warmup_share: Share of all steps in which the learning rate rises (warmup_cosine, one_cycle).
        gradient_checkpointing: Compute activations again in backward instead of keeping them.
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
        schedule: Schedule = "warmup_cosine",
        warmup_share: float = 0.05,
        gradient_checkpointing: bool = False,
        compile_network: bool = False,
    ) -> None:
        super().__init__()
        if learning_rate < 0:
            raise UserError(f"model.learning_rate must not be negative, but is {learning_rate}.")
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.schedule: Schedule = schedule
        self.warmup_share = warmup_share
        self.gradient_checkpointing, self.compile_network = gradient_checkpointing, compile_network
        self.finite_check = FiniteCheck()
        # A part's share of the learning rate, and its parameters' names; fine-tuning sets it. Empty: all, alike.
        self.parts: dict[str, tuple[float, list[str]]] = {}
        # Each returns what is minimised in place of the loss, given (batch, outputs, loss); distillation adds its own.
        self.objectives: list[Objective] = []

    def example_inputs(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """Return the arguments of `forward`, by name, that `batch` holds; the export traces with them."""
        raise NotImplementedError(f"{type(self).__name__} must define example_inputs(batch).")

    def try_on(self, inputs: dict[str, Tensor]) -> None:
        """Compute on two samples of `inputs`, the arguments of `forward`, before anything is written.

        Raises:
            UserError: The network cannot take them.
        """
        try:
            with torch.no_grad():
                self.eval()(**{name: value[:2] for name, value in inputs.items()})
        except (RuntimeError, ValueError, IndexError, AssertionError) as error:
            shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in inputs.items())
            why = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
            todo = "choose sizes in data that it can, or another network (with TRACEBACK=1 you see where)."
            raise UserError(f"the network cannot take the data's {shapes}: {why}; {todo}") from error
        finally:
            self.train()

    def configure_model(self) -> None:
        """Compile in place: torch.compile(network) would wrap it and rename every key of a checkpoint."""
        if self.gradient_checkpointing and not checkpoint_blocks(self.network):
            raise UserError("model.gradient_checkpointing finds no Sequential or ModuleList in the network; use false.")
        if self.compile_network:
            self.network.compile()

    def on_train_batch_start(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Know whose samples they are, should the loss not be finite."""
        self.finite_check.batch = batch

    def on_before_backward(self, loss: Tensor) -> None:
        """Remember the loss; whether it is finite is asked once a step, with the gradients."""
        self.finite_check.remember(loss)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip as trainer.gradient_clip_val says, but never a gradient that is not finite: clipped, all are NaN."""
        parameters = [p for p in self.parameters() if p.grad is not None]
        norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
        self.finite_check.look(self, norm)
        if gradient_clip_val and gradient_clip_algorithm == "value":
            clip_grad_value_(parameters, gradient_clip_val)
        elif gradient_clip_val:
            clip_grads_with_norm_(parameters, gradient_clip_val, norm)
        self.log("train/gradient_norm", norm)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the optimizer's groups, two for each of `parts`: weights, and what does not decay.

        They hold only what is trained, so that those of a frozen part are empty.
        """
        groups: list[dict[str, Any]] = []
        for part, (share, names) in (self.parts or {"": (1.0, [n for n, _ in self.named_parameters()])}).items():
            trained = [p for p in map(self.get_parameter, names) if p.requires_grad]
            common = {"lr": share * self.learning_rate}
            groups += [
                {"params": [p for p in trained if p.ndim > 1], "weight_decay": self.weight_decay, **common},
                {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0, **common},
            ]
            if self.parts:  # by which the logged rates are told apart
                groups[-2]["name"], groups[-1]["name"] = part, f"{part}/not_decayed"
        return groups

    def objective(self, batch: dict[str, Any], outputs: Tensor, loss: Tensor) -> Tensor:
        """Return what training minimises: `loss` (scalar), changed by each of `objectives`."""
        for change in self.objectives:
            loss = change(batch, outputs, loss)
        return loss

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Return AdamW over what is trained, and the schedule.

        Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019.
        """
        # One kernel for all parameters; but it unscales gradients itself, which float16 clipping forbids.
        fused = self.device.type in ("cpu", "cuda") and self.trainer.precision != "16-mixed"
        optimizer = torch.optim.AdamW(self.parameter_groups(), lr=self.learning_rate, fused=fused)
        schedule = make_schedule(self.schedule, optimizer, self.warmup_share, self.trainer)
        return {"optimizer": optimizer, "lr_scheduler": schedule}

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
