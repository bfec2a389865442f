"""What the checks share: their list, what they return, and the project as fit would start it."""

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ...practices.base_module import BaseModule
from ...practices.loaders import BaseDataModule, Split

SPLITS: tuple[Split, ...] = ("train", "val", "test")
WAITS = "waits for what failed above"


@dataclass(frozen=True)
class Result:
    """What a check found: the figure, and unless all is well what to do about it, in a sentence."""

    state: Literal["pass", "warn", "fail", "skip"]
    figure: str
    remedy: str = ""


class Skip(Exception):  # noqa: N818 - nothing is wrong
    """The check has nothing to look at; the message says why."""


CHECKS: dict[str, Callable[["Project"], Result]] = {}


def check(look: Callable[["Project"], Result]) -> Callable[["Project"], Result]:
    """Add `look` to the list: its name is the check's, its docstring says what holds if all is well."""
    CHECKS[look.__name__.replace("_", "-")] = look
    return look


def fail_if(faults: Iterable[str], remedy: str, otherwise: str, state: Literal["warn", "fail"] = "fail") -> Result:
    """Return a fail that names the first of `faults`, or where there are none a pass with the figure `otherwise`."""
    found = list(dict.fromkeys(faults))
    more = f" and {len(found) - 2:,} more" if len(found) > 2 else ""
    return Result(state, ", ".join(found[:2]) + more, remedy) if found else Result("pass", otherwise)


@dataclass
class Seen:
    """What was seen of a split: of how many of its `total` samples, and what each tensor of them is like."""

    total: int
    looked: int = 0
    errors: list[str] = field(default_factory=list)
    not_finite: list[str] = field(default_factory=list)
    types: dict[str, set[torch.dtype]] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    counts: dict[str, Counter[int]] = field(default_factory=dict)  # of whole numbers
    contents: dict[str, bytes] = field(default_factory=dict)  # sample: hash of what the module sees of it


class Project:
    """Data, module and trainer of a configuration, none of which a check changes; the first checks set these."""

    cli: Any  # the TrainingCLI
    trainer: Any  # never trains
    data: BaseDataModule
    module: BaseModule  # never runs; `fresh` copies it
    seen: dict[Split, Seen]
    batches: list[dict[str, Any]]  # the first three training batches, as a step gets them
    target: str  # the entry of a batch that is to be predicted
    inputs: dict[str, Tensor]  # what `forward` takes of the first batch
    outputs: Tensor  # what the untrained module gives for them in evaluation
    left_behind = False  # whether a check did not end

    def __init__(self, build: Callable[[], Any], folder: Path = Path("runs/doctor"), seconds: float = 8.0) -> None:
        """Look at what `build` returns, a TrainingCLI; at samples for `seconds`; write for people into `folder`."""
        self.build, self.folder, self.seconds = build, folder, seconds

    def __getattr__(self, name: str) -> Any:
        """Skip a check that needs what could not be made."""
        raise Skip(WAITS)

    @property
    def classes(self) -> int:
        """How many classes targets may have; 0 where they are numbers."""
        numbers = self.batches[0][self.target].is_floating_point() or self.outputs.ndim < 2
        return 0 if numbers or self.outputs.shape[1] < 2 else self.outputs.shape[1]

    def fresh(self) -> BaseModule:
        """Return a copy of the module as fit starts it: on its device, in training, but logging nothing."""
        module: Any = copy.deepcopy(self.module)
        module.trainer = self.trainer
        module.configure_model()
        module.log = module.log_dict = lambda *arguments, **options: None
        converted: BaseModule = self.trainer.precision_plugin.convert_module(eager(module))
        return converted.to(self.trainer.strategy.root_device)

    def loss(self, module: BaseModule, batch: dict[str, Any]) -> Tensor:
        """Return the loss of `module` on `batch`, computed in the trainer's precision."""
        if not module.automatic_optimization:
            raise Skip("the module optimises by hand")
        with self.trainer.precision_plugin.forward_context():
            output: Any = module.training_step(batch, 0)
        loss: Tensor = output["loss"] if isinstance(output, Mapping) else output
        return loss

    def steps(self, module: BaseModule, batches: Iterable[Any], rate: float, seconds: float) -> Iterator[float]:
        """Train `module` by AdamW on `batches` for at most `seconds`; yield the loss before every step."""
        optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=rate)
        end = time.monotonic() + seconds
        for batch in batches:
            optimizer.zero_grad()
            loss = self.loss(module, batch)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            yield float(loss.detach())
            if time.monotonic() > end:
                return


def head(batch: Any, count: int) -> Any:
    """Return the first `count` samples of a batch, whatever it nests; what is no tensor and no list stays whole."""
    if isinstance(batch, dict):
        return {name: head(value, count) for name, value in batch.items()}
    return batch[:count] if isinstance(batch, Tensor | list | tuple) else batch


def eager(module: Any) -> Any:
    """Undo that parts of `module` are compiled at their first call, which takes longer than all that is looked at."""
    for layer in module.modules():
        layer._compiled_call_impl = None
    return module
