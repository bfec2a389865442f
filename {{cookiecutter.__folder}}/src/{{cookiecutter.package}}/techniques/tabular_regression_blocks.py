"""A network of blocks for tables: `fit --model.network configs/network/blocks.yaml`."""

import torch
from torch import Tensor, nn

from .blocks import passed_through


class ResidualBlock(nn.Module):
    """A hidden layer whose result is added to what came in, so that many can be stacked.

    Args:
        width: Numbers that enter and leave.
        hidden: Units between.
        dropout: Share of them dropped in training.

    Source: Gorishniy et al., Revisiting Deep Learning Models for Tabular Data, 2021.
    """

    def __init__(self, width: int, hidden: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, width)
        )

    def forward(self, values: Tensor) -> Tensor:
        """Return new `values`, float (batch, width)."""
        result: Tensor = values + self.layers(values)
        return result


class BlockNetwork(nn.Module):
    """Numbers and embedded categories brought to one width, blocks one after the other, and a linear head.

    Args:
        features: Numbers a row.
        cardinalities: Values of each category, with 0 for unknown.
        outputs: Numbers to predict.
        blocks: Modules; the first takes (batch, width), the last gives (batch, anything).
        width: Numbers that enter the blocks.
        embedding_size: Numbers that a category becomes.
    """

    def __init__(
        self,
        features: int,
        cardinalities: list[int],
        outputs: int,
        blocks: list[nn.Module],
        width: int = 64,
        embedding_size: int = 4,
    ) -> None:
        super().__init__()
        last = passed_through(blocks, torch.zeros(2, width))
        self.embeddings = nn.ModuleList(nn.Embedding(n, embedding_size, padding_idx=0) for n in cardinalities)
        self.stem = nn.Linear(features + embedding_size * len(cardinalities), width)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(last.shape[1], outputs)

    def forward(self, features: Tensor, categories: Tensor) -> Tensor:
        """Return (batch, outputs) for `features`, float (batch, features), and int64 `categories` (batch, columns)."""
        embedded = [embed(categories[:, i]) for i, embed in enumerate(self.embeddings)]
        outputs: Tensor = self.head(self.blocks(self.stem(torch.cat([features, *embedded], dim=1))))
        return outputs
