"""Start from weights that were trained on something else, and say which of them were taken."""

import pickle
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from .errors import UserError


def checkpoint_path(argument: str, place: str) -> Path:
    """Return the checkpoint that `place` gives: a run's folder stands for its best one.

    Raises:
        UserError: It is runs/latest, which soon points at the very run that begins.
    """
    if "latest" in Path(place).parts:
        raise UserError(f"{argument} is {place}, which will be another run tomorrow; give the folder it points at.")
    return Path(place) / "checkpoints" / "best.ckpt" if Path(place).is_dir() else Path(place)


def read(path: str | Path) -> Any:
    """Return what the file `path` holds, without running code that a stranger put into it.

    Raises:
        UserError: The file is missing, or holds more than tensors and plain values.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UserError(f"the weights {path} do not exist; give a file that is there.") from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError) as error:
        reason = "holds more than tensors, or is damaged"
        raise UserError(f"{path} {reason}; write it with torch.save(network.state_dict(), path).") from error


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Return the state_dict in the file `path`.

    Raises:
        UserError: The file is missing, or holds anything but tensors by name.
    """
    content = read(path)
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise UserError(f"{path} is no state_dict; write it with torch.save(network.state_dict(), path).")
    return content


def load_pretrained(
    network: nn.Module, weights: Mapping[str, Tensor], parameters_only: bool = False, new_head: bool = False
) -> list[str]:
    """Load `weights` into `network` except into its head, and return the names left as they were.

    The head is the last layer: its outputs are one's own classes. It is taken too where it has the same
    shape, unless `new_head`. `strict=False` alone would not do, as it skips misspelt names in silence and
    still fails on shapes. With `parameters_only`, running statistics stay too: told by `named_parameters`,
    as only there they are not listed.

    Raises:
        UserError: A weight other than the head's is missing, unknown, or of another shape.
    """
    own, head = network.state_dict(), _head(network)
    # Older files lack this counter, which no result depends on.
    names = [key for key in own if key in weights or not key.endswith("num_batches_tracked")]
    differing = [
        key
        for key in names
        if key not in weights or own[key].shape != weights[key].shape or (new_head and key.startswith(head))
    ]
    faults = [_fault(key, own, weights) for key in differing if not key.startswith(head)]
    faults += [f"{key} is unknown here" for key in weights if key not in own and not key.startswith(head)]
    if faults:
        raise UserError(f"the pretrained weights do not fit the network: {'; '.join(faults[:3])}; choose others.")
    wanted = dict(network.named_parameters()) if parameters_only else own
    taken = {key: value for key, value in weights.items() if key in wanted and key not in differing}
    network.load_state_dict(taken, strict=False)
    rank_zero_info(f"Pretrained: {len(taken)} of {len(own)} tensors taken; new: {', '.join(differing) or 'none'}")
    return differing


def _fault(key: str, own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> str:
    if key not in weights:
        return f"{key} is missing"
    return f"{key} is {tuple(weights[key].shape)} there and {tuple(own[key].shape)} here"


def _head(network: nn.Module) -> tuple[str, ...]:
    """Return the prefix of the last layer registered, and of those beside it, as LRASPP has, with as many outputs."""
    layers = [(n, module) for n, module in network.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    last, head = layers[-1]
    parent = last.rpartition(".")[0]
    if isinstance(network.get_submodule(parent), nn.Sequential):  # there layers follow each other
        return (f"{last}.",)
    alike = (parent, len(head.weight))
    beside = takewhile(lambda one: (one[0].rpartition(".")[0], len(one[1].weight)) == alike, reversed(layers))
    return tuple(f"{name}." for name, _ in beside)
