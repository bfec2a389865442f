"""Deformable convolution, for things that turn, bend and vary in size: a block for configs/network/blocks.yaml."""

import torch
import torchvision
from torch import Tensor, nn


class DeformableBlock(nn.Module):
    """A convolution each of whose nine points looks where the image tells it to, normalised and activated.

    It starts as a plain convolution: the offsets are zero and learnt from there. On a GPU its gradient is summed
    in no fixed order, so that two runs are alike, but not to the bit.
    Source: Dai et al., Deformable Convolutional Networks, 2017; with the weights of Zhu et al., 2019.

    Args:
        in_channels: Channels that enter.
        out_channels: Channels that leave.
        stride: 2 halves the image.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = torchvision.ops.DeformConv2d(
            in_channels, out_channels, kernel_size=3, stride=stride, padding=1, bias=False
        )
        # For each of nine points its shift down, to the right, and how much it counts.
        self.where = nn.Conv2d(in_channels, 27, kernel_size=3, stride=stride, padding=1)
        nn.init.zeros_(self.where.weight)
        nn.init.zeros_(self.where.bias)  # type: ignore[arg-type]
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, image: Tensor) -> Tensor:
        """Return float (batch, out_channels, height / stride, width / stride) for `image` (batch, in_channels, ...)."""
        offsets, weights = self.where(image).split((18, 9), dim=1)
        result: Tensor = self.norm(self.convolution(image, offsets, 2 * weights.sigmoid()))
        return torch.relu(result)
