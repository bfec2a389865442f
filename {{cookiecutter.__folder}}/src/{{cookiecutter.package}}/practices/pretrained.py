"""Start from weights that were trained on something else, and say which of them were taken."""

from collections.abc import Mapping

from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from .errors import UserError


def load_pretrained(network: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """Load `weights` into `network` except into its head, and return the names left as they were.

    The head is what follows the last layer whose shape agrees: its outputs are one's own classes.
    `strict=False` alone would not do, as it skips misspelt names in silence and still fails on shapes.

    Raises:
        UserError: A weight other than the head's is missing or of another shape.
    """
    own = network.state_dict()
    differing = [k for k in own if k not in weights or own[k].shape != weights[k].shape]
    head = _head(network)
    wrong = [key for key in differing if not key.startswith(f"{head}.")]
    if wrong:
        raise UserError(f"the pretrained weights do not fit the network at {', '.join(wrong[:3])}; choose others.")
    taken = {key: value for key, value in weights.items() if key in own and key not in differing}
    network.load_state_dict(taken, strict=False)
    rank_zero_info(f"Pretrained: {len(taken)} of {len(own)} tensors taken; new: {', '.join(differing) or 'none'}")
    return differing


def _head(network: nn.Module) -> str:
    """Return the name of the last layer with weights, by order of registration."""
    names: list[str] = [n for n, module in network.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    return names[-1]
