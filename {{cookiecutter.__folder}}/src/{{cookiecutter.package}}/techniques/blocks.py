"""What the networks of blocks share: blocks are named in YAML, and one that does not fit is named in the error.

A block is any module, torch's, torchvision's or one's own, by class path and arguments: configs/network/blocks.yaml.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..practices.errors import UserError


def passed_through(blocks: Sequence[nn.Module], values: Tensor, *others: Tensor) -> Tensor:
    """Return what `blocks`, one after the other, make of `values`; each is called with `others` too.

    Nothing is learnt or counted, and no random number is drawn: the shape is what is wanted, so that it
    need not be written down and kept in step.

    Raises:
        UserError: A block does not take what the one before it gives, or gives no tensor.
    """
    shape = tuple(values.shape)
    for number, block in enumerate(blocks):
        training = block.training
        try:
            with torch.no_grad():
                values = block.eval()(values, *others)
            given = tuple(values.shape)
        except (RuntimeError, ValueError, TypeError, AssertionError, AttributeError, IndexError) as error:
            why = (str(error) or type(error).__name__).splitlines()[0]
            what = f"blocks[{number}], {type(block).__name__}, does not take what comes to it, a tensor of {shape}"
            raise UserError(f"{what}: {why}") from error
        finally:
            block.train(training)
        shape = given
    return values
