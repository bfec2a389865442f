"""A network of blocks for segmentation: `fit --model.network configs/network/blocks.yaml`."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .blocks import passed_through


class BlockNetwork(nn.Module):
    """Blocks one after the other, a class for each place they give, brought back to the image's size.

    Args:
        num_classes: Outputs.
        blocks: Modules; the first takes (batch, 3, height, width), the last gives (batch, channels, ...).
        dropout: Share of the channels that training leaves out before the head.
    """

    def __init__(self, num_classes: int, blocks: list[nn.Module], dropout: float = 0.1) -> None:
        super().__init__()
        features = passed_through(blocks, torch.zeros(2, 3, 64, 64))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.Dropout2d(dropout), nn.Conv2d(features.shape[1], num_classes, 1))

    def forward(self, image: Tensor) -> Tensor:
        """Return logits of shape (batch, classes, height, width) for `image` of shape (batch, 3, height, width)."""
        coarse: Tensor = self.head(self.blocks(image))
        return F.interpolate(coarse, image.shape[2:], mode="bilinear", align_corners=False)
