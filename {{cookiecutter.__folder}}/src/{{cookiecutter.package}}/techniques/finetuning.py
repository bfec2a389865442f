"""Transfer learning: train the new head alone, or let one stage after another join from the head downwards.

configs/finetune_head.yaml and configs/finetune_unfreeze.yaml use it. Not Lightning's BaseFinetuning: that leaves
frozen BatchNorm to normalise by the batch, and adds the optimizer's groups later, which no schedule then knows.
Source: Yosinski et al., How transferable are features in deep neural networks, 2014; Howard and Ruder, Universal
Language Model Fine-tuning, 2018 (unfreezing from the head downwards, a rate for each layer).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities import rank_zero_info
from torch import nn

from ..practices.base_module import BaseModule
from ..practices.errors import UserError, one_of
from ..practices.pretrained import checkpoint_path, load_pretrained, read, read_weights


class Pretrained(Callback):
    """Start training from the weights of another run of this project, or of a file.

    Args:
        weights: A run's folder (its best checkpoint), a checkpoint, or a file with the network's state_dict; null
            leaves the network as it was made. A resumed run goes on with its own weights.

    Raises:
        UserError: The file cannot be read, or its weights are of another network or for other inputs.
    """

    def __init__(self, weights: str | None = None) -> None:
        self.path = checkpoint_path("weights of Pretrained", weights) if weights else None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Load before the first step; not in `setup`, where a trainer does not yet know that it resumes."""
        if not self.path:
            rank_zero_info("Pretrained: no weights given; the network starts as it was made")
        elif trainer.ckpt_path is None:
            assert isinstance(pl_module, BaseModule)
            start_from(pl_module, self.path, getattr(trainer.datamodule, "fitted", ()))  # type: ignore[attr-defined]


def start_from(module: BaseModule, path: Path, fitted: Collection[str] = ()) -> list[str]:
    """Load `path` into the network of `module`, and return the names left as they were.

    The head of a run for other classes is left, even where it has the same size. Of what data were
    `fitted` to there, such as a vocabulary, everything must be the same here, and so must mean and std.

    Raises:
        UserError: It is not, or the weights do not fit.
    """
    content = read(path)
    if not isinstance(content, dict) or "state_dict" not in content:
        return load_pretrained(module.network, read_weights(path))
    made_with: dict[str, Any] = content.get("hyper_parameters", {})
    constants = [name for name in ("mean", "std") if name in made_with and name in module.hparams]
    for name in [*fitted, *constants]:
        if _plain(made_with.get(name)) != _plain(module.hparams[name]):
            raise UserError(f"{name} of {path} is not this model's; give --model.{name} as in that run's config.yaml.")
    weights = {key[8:]: value for key, value in content["state_dict"].items() if key.startswith("network.")}
    same = made_with.get("class_names") == module.hparams.get("class_names")
    return load_pretrained(module.network, weights, new_head=not same)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@dataclass
class Stage:
    """Parts of the network that learn together, by name, and their parameters' full names in the module."""

    parts: list[str]
    parameters: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the first part."""
        return self.parts[0]


class FineTuning(Callback):
    """Train `module.network` from its head downwards; what is not yet trained is frozen and in evaluation mode.

    Args:
        stages: Names of parts of the network, the head first, such as [network.fc, network.layer4]; what is in
            none of them stays frozen. null takes all, as they were registered.
        depth: Stages that are trained in the end, 1 for the head alone; null: all.
        epochs_per_stage: Epochs after which the next stage joins.
        rate_decay: Learning rate of a stage as a share of that of the stage above it.

    Raises:
        UserError: The network has no part of such a name, or not so many stages.
    """

    def __init__(
        self,
        stages: list[str] | None = None,
        depth: int | None = None,
        epochs_per_stage: int = 3,
        rate_decay: float = 0.3,
    ) -> None:
        if epochs_per_stage < 1:
            raise UserError(f"epochs_per_stage of FineTuning is {epochs_per_stage}, but must be at least 1.")
        self.named, self.depth = stages, depth
        self.epochs_per_stage, self.rate_decay = epochs_per_stage, rate_decay
        self.stages: list[Stage] = []
        self.trained = 1

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Freeze before optimizers are made, and before DDP looks for what it must synchronise."""
        if stage != "fit":
            return
        if not isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
            name = type(trainer.strategy).__name__
            raise UserError(f"fine-tuning cannot unfreeze under {name}; set trainer.strategy to auto or ddp.")
        assert isinstance(pl_module, BaseModule)
        self.module = pl_module
        found = find_stages(pl_module.network)
        self.stages = named_stages(pl_module.network, self.named, found) if self.named else found
        if not 1 <= (depth := len(self.stages) if self.depth is None else self.depth) <= len(self.stages):
            names = ", ".join(stage.name for stage in self.stages)
            raise UserError(f"depth of FineTuning is {depth}, but there are {len(self.stages)} stages: {names}.")
        rest = fill(pl_module, self.stages)
        if not self.named:  # what lies beside all parts, such as a transformer's class token, joins last
            self.stages[-1].parameters += rest
            rest = []
        rest += [name for stage in self.stages[depth:] for name in stage.parameters]
        self.stages = self.stages[:depth]
        rates = {stage.name: (self.rate_decay**i, stage.parameters) for i, stage in enumerate(self.stages)}
        pl_module.parts = rates
        for name in rest:
            pl_module.get_parameter(name).requires_grad = False
        self.frozen, self.trained = bool(rest), 1
        self._freeze()

    def state_dict(self) -> dict[str, Any]:
        """Return how many stages are trained."""
        return {"trained": self.trained}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Unfreeze what a run to be resumed had unfrozen; optimizers are made after this. Not where one is measured."""
        self.trained = state_dict["trained"]
        if self.stages:
            self._freeze()

    def _freeze(self) -> None:
        """Let the stages that are trained learn, and no others."""
        for index, stage in enumerate(self.stages):
            for name in stage.parameters:
                self.module.get_parameter(name).requires_grad = index < self.trained
        counts = [sum(p.numel() for p in self.module.parameters() if p.requires_grad or not t) for t in (True, False)]
        names = ", ".join(stage.name for stage in self.stages[: self.trained])
        rank_zero_info(f"Fine-tuning: {names} learn, {counts[0]:,} of {counts[1]:,} parameters")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse an optimizer whose groups no stage could join, and say where the last one has no time to.

        Raises:
            UserError: The module makes other groups than those of its `parameter_groups`.
        """
        if len(self.stages) < 2:
            return
        expected = len(self.module.parameter_groups())
        for optimizer in trainer.optimizers:
            if (count := len(optimizer.param_groups)) != expected:
                raise UserError(
                    f"configure_optimizers of {type(pl_module).__name__} makes {count} parameter groups, but "
                    f"fine-tuning needs the {expected} of self.parameter_groups(); give the optimizer those."
                )
        if 0 <= (trainer.max_epochs or -1) <= (joins := (len(self.stages) - 1) * self.epochs_per_stage):
            name = self.stages[-1].name
            rank_zero_info(f"Fine-tuning: {name} would join after {joins} epochs, of which there are fewer or no more")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the next stages join: their groups are in the optimizer since it was made, but were empty."""
        wanted = min(len(self.stages), 1 + trainer.current_epoch // self.epochs_per_stage)
        if wanted <= self.trained:
            return
        self.trained = wanted
        self._freeze()
        for optimizer in trainer.optimizers:
            for group, now in zip(optimizer.param_groups, self.module.parameter_groups(), strict=True):
                group["params"] = now["params"]
        if isinstance(trainer.strategy, DDPStrategy):
            # It synchronises the gradients of what needed one when it was made.
            trainer.strategy.model = pl_module
            trainer.strategy.configure_ddp()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Keep what is frozen in evaluation mode, whatever switched it since the last batch.

        BatchNorm there uses the statistics it was trained with and leaves them alone, Dropout drops nothing.
        """
        network = self.module.network
        complete = self.trained == len(self.stages) and not self.frozen
        network.train(complete)
        for stage in [] if complete else self.stages[: self.trained]:
            for name in stage.parts:
                network.get_submodule(name).train()


def find_stages(network: nn.Module) -> list[Stage]:
    """Return the stages of `network`, the last registered first, which in most networks is the head.

    Its members are the stages. While they are fewer than five, the largest that holds more than single
    layers is replaced by its own members. What has no weights, or is a normalisation, belongs to the
    stage before it.
    """
    parts = [name for name, _ in network.named_children()]
    weights = {name: sum(p.numel() for p in network.get_submodule(name).parameters()) for name in parts}
    while sum(_is_stage(network.get_submodule(name)) for name in parts) < 5:
        large = [name for name in parts if _opens(network.get_submodule(name))]
        if not large:
            break
        largest = max(large, key=weights.__getitem__)
        inner = {f"{largest}.{name}": m for name, m in network.get_submodule(largest).named_children()}
        weights |= {name: sum(p.numel() for p in module.parameters()) for name, module in inner.items()}
        place = parts.index(largest)
        parts[place : place + 1] = inner
    stages: list[Stage] = []
    for name in parts:
        if stages and not _is_stage(network.get_submodule(name)):
            stages[-1].parts.append(name)
        else:
            stages.append(Stage([name]))
    return stages[::-1]


def _is_stage(module: nn.Module) -> bool:
    return any(p.ndim > 1 for p in module.parameters())


def _opens(module: nn.Module) -> bool:
    """Return whether `module` has members, with weights, that have members themselves."""
    return any(_is_stage(child) and any(True for _ in child.children()) for child in module.children())


def named_stages(network: nn.Module, names: Sequence[str], found: Sequence[Stage]) -> list[Stage]:
    """Return a stage for each of `names`; a wrong one lists those of `found`.

    Raises:
        UserError: The network has no part of such a name.
    """
    known = dict(network.named_modules())
    for name in names:
        if not name or name not in known:
            one_of("a stage of FineTuning", name, [part for stage in found for part in stage.parts])
    return [Stage([name]) for name in names]


def fill(module: BaseModule, stages: Sequence[Stage]) -> list[str]:
    """Give each stage its parameters' names, and return those that no stage has.

    What does not lie in the network is trained with the head.
    """
    rest: list[str] = []
    for name, _ in module.named_parameters():
        owner = next((s for s in stages for part in s.parts if name.startswith(f"network.{part}.")), None)
        owner = owner or (None if name.startswith("network.") else stages[0])
        (owner.parameters if owner else rest).append(name)
    return rest
