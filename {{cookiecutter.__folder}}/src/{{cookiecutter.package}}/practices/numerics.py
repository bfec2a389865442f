"""Numbers that are not finite end a run at the step where they appear."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .errors import UserError

NAMES_SHOWN = 64


class FiniteCheck:
    """Stop before an optimizer step would spread NaN or infinity over all weights.

    It remembers the batches and losses since the last step, and looks at them together with the
    gradients' norm, once a step. That one look waits for the device, as clipping with
    `error_if_nonfinite=True` would; a look at each loss where it is computed would wait twice.
    """

    def __init__(self) -> None:
        self.batch: dict[str, Any] = {}
        self.seen: list[tuple[Sequence[Any] | Tensor, Tensor]] = []

    def remember(self, loss: Tensor) -> None:
        """Keep `loss` (scalar) of the current batch, and the names of its samples, on their device."""
        self.seen.append((self.batch.get("path", self.batch.get("id", ())), loss.detach()))

    def look(self, module: Any, norm: Tensor) -> None:
        """Stop if a loss since the last step, or the gradients' total norm, is not finite.

        Raises:
            UserError: One is not, and no loss scaling will mend it.
        """
        seen, self.seen = self.seen, []
        losses = torch.stack([loss for _, loss in seen]).isfinite()
        if (norm.isfinite() & losses.all()).item():
            return
        # In float16 the scaler skips a step whose scaled gradients overflow, and lowers its scale for the
        # next. That is its job, unless the loss itself is not finite or there is nothing left to lower.
        scaler = getattr(module.trainer.precision_plugin, "scaler", None)
        if scaler is not None and losses.all() and scaler.get_scale() > 1:
            return
        culprits = [samples for (samples, _), finite in zip(seen, losses.tolist(), strict=True) if not finite]
        names = [str(name) for samples in culprits or [s for s, _ in seen] for name in _plain(samples)]
        raise UserError(_sentence(module, self.batch, bool(culprits), names))


def _plain(samples: Sequence[Any] | Tensor) -> Sequence[Any]:
    return samples.tolist() if isinstance(samples, Tensor) else samples


def _sentence(module: Any, batch: dict[str, Any], loss_is_bad: bool, names: list[str]) -> str:
    inputs = module.example_inputs(batch)
    bad = [f"input {key} itself" for key, value in inputs.items() if not value.isfinite().all()]
    output = first_bad_output(module, inputs)
    gradients = [name for name, p in module.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    causes = bad + ([f"the output of {output}"] if output else [])
    # Backward runs from the last layer to the first.
    causes += [f"the gradient of {gradients[-1]}"] if gradients else []
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return (
        f"training stopped at step {module.trainer.global_step}, before its update, as the "
        f"{'loss' if loss_is_bad else 'gradient'} is not finite; first to go: {', then '.join(causes) or 'the loss'}; "
        f"samples: {', '.join(names[:NAMES_SHOWN]) or 'without a path or id'}{more}; "
        "look at them, or divide model.learning_rate by ten; the checkpoints are those of before."
    )


def first_bad_output(module: Any, inputs: dict[str, Tensor]) -> str | None:
    """Return the name of the first layer with an output that is not finite, found by running `inputs` again."""
    found: list[str] = []

    def look(name: str, layer: nn.Module, arguments: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.is_floating_point() and not output.isfinite().all():
            found.append(name)

    layers = [(name, layer) for name, layer in module.named_modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(partial(look, name)) for name, layer in layers]
    try:
        # Compiled code would not call the hooks.
        with (
            torch.no_grad(),
            module.trainer.precision_plugin.forward_context(),
            torch.compiler.set_stance("force_eager"),
        ):
            module(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None
