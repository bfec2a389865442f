"""Networks: each is called with (num_tokens, num_classes) and maps tokens (batch, length) to (batch, classes).

Tokens are int64, 0 is padding, which must change nothing.

TODO(you): network: one of configs/network/, or your own
Put your own here and name it in a file like configs/network/transformer.yaml, then
`fit --model.network configs/network/mine.yaml`.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..reading.sequences import PaddedGRU


class GRUClassifier(nn.Module):
    """Gated recurrent units read the text forwards and backwards; the largest of each unit's states decides.

    Args:
        num_tokens: Padding, unknown and the vocabulary.
        num_classes: Outputs.
        embedding_size: Numbers that a token becomes.
        width: Units a direction.
        layers: Pairs of readings above each other.
        dropout: Share of numbers dropped in training, before each layer and the head.
    """

    def __init__(
        self,
        num_tokens: int,
        num_classes: int,
        embedding_size: int = 64,
        width: int = 128,
        layers: int = 1,
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_tokens, embedding_size, padding_idx=0)
        self.gru = PaddedGRU(embedding_size, width, layers, dropout)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(2 * width, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits of shape (batch, classes) for `tokens`, int64 (batch, length)."""
        mask = tokens != 0
        states = self.gru(self.dropout(self.embedding(tokens)), mask)
        largest = states.masked_fill(~mask.unsqueeze(2), -torch.inf).amax(dim=1)
        logits: Tensor = self.head(self.dropout(largest))
        return logits


class Block(nn.Module):
    """Attention and a feed-forward layer, each normalised before and added to what came in."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        """Build it for `width` numbers a token, which `heads` must divide."""
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.attention_norm, self.layer_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return new `states`, float (batch, length, width); only keys where the bool `mask` is true are seen."""
        # B batch, L length, H heads, E width of a head
        split = self.query_key_value(self.attention_norm(states)).unflatten(2, (3, self.heads, -1))
        query_BHLE, key_BHLE, value_BHLE = split.permute(2, 0, 3, 1, 4).unbind(0)  # noqa: N806
        rate = self.rate if self.training else 0.0
        seen = mask[:, None, None, :]
        mixed_BHLE = F.scaled_dot_product_attention(query_BHLE, key_BHLE, value_BHLE, seen, rate)  # noqa: N806
        states = states + self.dropout(self.project(mixed_BHLE.transpose(1, 2).flatten(2)))
        result: Tensor = states + self.dropout(self.layers(self.layer_norm(states)))
        return result


class Transformer(nn.Module):
    """A small Transformer encoder with sinusoidal positions, whose states are averaged over the text.

    Source: Vaswani et al., Attention Is All You Need, 2017; normalised before, Xiong et al., 2020.
    """

    def __init__(
        self,
        num_tokens: int,
        num_classes: int,
        width: int = 128,
        heads: int = 4,
        layers: int = 2,
        dropout: float = 0.1,
    ) -> None:
        """Build `layers` blocks of `width` numbers a token, divided over `heads`."""
        super().__init__()
        self.embedding = nn.Embedding(num_tokens, width, padding_idx=0)
        frequencies = torch.exp(-math.log(10_000) / width * torch.arange(0, width, 2))
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits of shape (batch, classes) for `tokens`, int64 (batch, length)."""
        mask = tokens != 0
        angles = torch.arange(tokens.shape[1], device=tokens.device)[:, None] * self.frequencies  # type: ignore[operator]
        positions = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)
        states = self.dropout(self.embedding(tokens) + positions)
        for block in self.blocks:
            states = block(states, mask)
        kept = mask.unsqueeze(2)
        mean = (self.norm(states) * kept).sum(dim=1) / kept.sum(dim=1)
        logits: Tensor = self.head(mean)
        return logits
