"""A network of blocks for images: `fit --model.network configs/network/blocks.yaml`."""

import torch
from torch import Tensor, nn

from .blocks import passed_through


class BlockNetwork(nn.Module):
    """Blocks one after the other, the average over what is left of the image, and a linear head.

    Args:
        num_classes: Outputs.
        blocks: Modules; the first takes (batch, 3, height, width), the last gives (batch, channels, ...).
        dropout: Share of the features that training leaves out before the head.
        image_size: That of data.image_size; matters only to blocks that flatten.
    """

    def __init__(self, num_classes: int, blocks: list[nn.Module], dropout: float = 0.1, image_size: int = 64) -> None:
        super().__init__()
        features = passed_through(blocks, torch.zeros(2, 3, image_size, image_size))
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()) if features.ndim == 4 else nn.Identity()
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(features.shape[1], num_classes))

    def forward(self, image: Tensor) -> Tensor:
        """Return logits of shape (batch, classes) for `image` of shape (batch, 3, height, width)."""
        logits: Tensor = self.head(self.pool(self.blocks(image)))
        return logits
