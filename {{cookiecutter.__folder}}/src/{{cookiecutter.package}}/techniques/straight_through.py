"""An operation with a gradient of its own: the sign of a number, whose true gradient is zero almost everywhere.

As an activation in a network of blocks: class_path PACKAGE.techniques.straight_through.Binarize.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class StraightThroughSign(Function):
    """Minus one or one forwards; backwards the gradient of `hardtanh`, that is of the number between -1 and 1.

    Outside of -1 to 1 nothing passes, or numbers would grow without an effect on the result.
    Source: Bengio, Léonard, Courville, Estimating or Propagating Gradients Through Stochastic Neurons, 2013.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor) -> Tensor:
        """Return -1 or 1, of the shape and dtype of `values`; 0 becomes 1, as a third value would be no bit.

        NaN stays NaN, so that what went wrong is noticed.
        """
        return torch.where(values >= 0, 1.0, torch.where(values < 0, -1.0, values))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Keep the inputs, by the one way that frees them and notices when they are changed meanwhile."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Return the gradient of `values` from that of the result."""
        (values,) = ctx.saved_tensors
        result: Tensor = gradient * (values.abs() <= 1)
        return result


class Binarize(nn.Module):
    """Activation of one bit, for networks whose activations shall be stored or multiplied as bits."""

    def forward(self, values: Tensor) -> Tensor:
        """Return -1 or 1 for each of `values`, a float tensor of any shape."""
        result: Tensor = StraightThroughSign.apply(values)
        return result
