"""Networks: each is called with the number of classes and maps (batch, 3, h, w) to (batch, classes, h, w).

TODO(you): network: one of configs/network/, or your own
Put your own here and name it in a file like configs/network/deeplabv3_resnet50.yaml, then
`fit --model.network configs/network/mine.yaml`.
"""

import math
from itertools import pairwise
from typing import Literal

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from ..practices.errors import one_of
from ..practices.pretrained import load_pretrained, read_weights


class UNet(nn.Module):
    """A small U-Net, which joins what is seen coarsely with where it is.

    Source: Ronneberger, Fischer, Brox, U-Net, 2015; here padded, with normalisation and strided convolutions.

    Args:
        num_classes: Outputs.
        width: Channels at full resolution, doubled at each halving.
        levels: Resolutions, the full one included; 3 see about 20 pixels in every direction, 5 about 90.
        normalization: `group` for batches of a few large images, whose batch statistics would be noise.
    """

    def __init__(
        self, num_classes: int, width: int = 16, levels: int = 3, normalization: Literal["batch", "group"] = "batch"
    ) -> None:
        super().__init__()
        channels = [width * 2**level for level in range(levels)]
        self.multiple = 2 ** (levels - 1)
        self.encoder = nn.ModuleList([self._block(3, width, 1, normalization)])
        self.encoder += [self._block(a, b, 2, normalization) for a, b in pairwise(channels)]
        self.up = nn.ModuleList([nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in pairwise(channels)])
        self.decoder = nn.ModuleList([self._block(2 * a, a, 1, normalization) for a in channels[:-1]])
        self.head = nn.Conv2d(width, num_classes, 1)

    @staticmethod
    def _block(inputs: int, outputs: int, stride: int, normalization: str) -> nn.Sequential:
        layers: list[nn.Module] = []
        for channels, step in ((inputs, stride), (outputs, 1)):
            groups = nn.GroupNorm(math.gcd(8, outputs), outputs)
            layers += [nn.Conv2d(channels, outputs, 3, stride=step, padding=1, bias=False)]
            layers += [groups if normalization == "group" else nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, image: Tensor) -> Tensor:
        """Return logits of shape (batch, classes, height, width) for `image` of shape (batch, 3, height, width)."""
        height, width = image.shape[-2:]
        # Halved and doubled again a size must come out the same; zeros are what a border shows anyway.
        features = F.pad(image, (0, -width % self.multiple, 0, -height % self.multiple))
        skipped = []
        for block in self.encoder:
            features = block(features)
            skipped.append(features)
        for level in reversed(range(len(self.decoder))):
            features = self.decoder[level](torch.cat([skipped[level], self.up[level](features)], dim=1))
        logits: Tensor = self.head(features)[..., :height, :width]
        return logits


class TorchvisionSegmenter(nn.Module):
    """Any segmentation network of torchvision's registry, by name.

    Args:
        num_classes: Outputs of the new head.
        name: Such as fcn_resnet50, deeplabv3_resnet50 or lraspp_mobilenet_v3_large.
        weights: File of one's own with a state_dict to start from, or null.
        weights_backbone: Pretrained weights of the backbone, such as IMAGENET1K_V1 (downloaded), or null.
    """

    def __init__(
        self, num_classes: int, name: str, weights: str | None = None, weights_backbone: str | None = None
    ) -> None:
        super().__init__()
        one_of("network.name", name, torchvision.models.list_models(module=torchvision.models.segmentation))
        options = {"weights": None, "weights_backbone": weights_backbone, "num_classes": num_classes}
        self.network = torchvision.models.get_model(name, **options)
        if weights is not None:
            load_pretrained(self.network, read_weights(weights))

    def forward(self, image: Tensor) -> Tensor:
        """Return logits of shape (batch, classes, height, width) for `image` of shape (batch, 3, height, width)."""
        logits: Tensor = self.network(image)["out"]
        return logits
