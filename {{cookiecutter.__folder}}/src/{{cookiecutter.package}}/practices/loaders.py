"""Data loading that gives the same samples whatever the number of workers, ranks or restarts.

The order of an epoch is a pure function of (seed, epoch), and every sample's augmentation draws from
random states seeded by (seed, epoch, index). So a worker more or a rank more changes nothing about a
sample, and two runs with one seed see the same data.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info

from .errors import UserError
from .hardware import choose_workers

Split = Literal["train", "val", "test"]
Key = tuple[int, int]


class MapDataset(Protocol):
    """What a dataset must offer: a length, and the same sample for the same index."""

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return sample `index`."""
        ...


class EpochSampler(DistributedSampler[Key]):
    """Yield (epoch, index) in an order that depends on the seed and the epoch alone.

    Being a DistributedSampler, Lightning takes it as it is and tells it the epoch. For training every
    rank gets the same number of samples (the last are repeated), or DDP would wait for ever; for
    evaluation nothing is repeated, so that metrics cover exactly the data.
    """

    def __init__(
        self,
        data: Sized,
        *,
        train: bool,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        weights: Tensor | None = None,
    ) -> None:
        """Partition `range(len(data))` over `world_size` ranks; if `train` shuffled, or drawn by `weights` (float)."""
        super().__init__(data, num_replicas=world_size, rank=rank, shuffle=train, seed=seed)  # type: ignore[arg-type]
        self.train, self.weights = train, weights
        self.start = (0, 0)  # epoch, and how many of its samples a resumed run has already seen

    def __len__(self) -> int:
        """Return the number of samples of this rank."""
        size = len(self.dataset)  # type: ignore[arg-type]
        if self.train:
            return -(-size // self.num_replicas)
        return len(range(self.rank, size, self.num_replicas))

    def _order(self) -> list[int]:
        """Return the epoch's order over all ranks; while training a multiple of their number."""
        size = len(self.dataset)  # type: ignore[arg-type]
        order = list(range(size))
        if self.train:
            generator = torch.Generator().manual_seed(mix(self.seed, self.epoch))
            # Every rank makes the one draw of all and takes its part: a seed of its own would draw doubles.
            order = (
                torch.randperm(size, generator=generator)
                if self.weights is None
                else torch.multinomial(self.weights, size, replacement=True, generator=generator)
            ).tolist()
            order += order[: -size % self.num_replicas]
        return order

    def __iter__(self) -> Iterator[Key]:  # type: ignore[override]
        """Yield this rank's keys."""
        epoch = self.epoch if self.train else 0
        seen = self.start[1] if self.train and epoch == self.start[0] else 0
        return iter([(epoch, index) for index in self._order()[self.rank :: self.num_replicas][seen:]])


class SeededDataset(Dataset[dict[str, Any]]):
    """Seed Python's, NumPy's and torch's random states for every sample on its own."""

    def __init__(self, data: MapDataset, seed: int) -> None:
        """Wrap `data`, whose `__getitem__` may then draw random numbers freely."""
        self.data, self.seed = data, seed

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.data)

    def __getitem__(self, key: Key | int) -> dict[str, Any]:
        """Return sample `key[1]` as epoch `key[0]` sees it; a plain index is of epoch 0."""
        epoch, index = (0, key) if isinstance(key, int) else key
        # In the training process the model's own draws (dropout) must not be disturbed.
        states = get_states() if get_worker_info() is None else None
        _set_seeds(mix(self.seed, epoch, index))
        try:
            return self.data[index]
        finally:
            if states is not None:
                set_states(states)


def mix(*numbers: int) -> int:
    """Return a 32-bit seed in which every number counts and neighbours are unrelated."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def _set_seeds(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    # Not torch.manual_seed, which would also reset the GPU that the model draws its dropout from.
    torch.default_generator.manual_seed(seed)


def get_states() -> tuple[Any, Any, Tensor]:
    """Return the states of Python's, NumPy's and torch's generators."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def set_states(states: tuple[Any, Any, Tensor]) -> None:
    """Continue the generators from `states`."""
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


class BaseDataModule(LightningDataModule):
    """Loaders for the splits that a subclass makes in `make_dataset`.

    Args:
        batch_size: Samples a step and device.
        num_workers: Processes that load data; null takes the CPUs that are free for it.
        pin_memory: Page-locked memory for faster copies to a GPU; null turns it on where there is one.
        weighted_sampling: Draw training samples so that all classes come equally often, some samples repeatedly.
    """

    # Attributes that the module needs: its argument of the same name, where left null, is set to them.
    provides: ClassVar[tuple[str, ...]] = ()
    # Those of them that are learnt from the training split: the module's own win over what data now says.
    fitted: ClassVar[tuple[str, ...]] = ()
    # Makes a batch of samples; null stacks them, which needs equal shapes.
    collate: Callable[[Sequence[dict[str, Any]]], dict[str, Any]] | None = None

    def __init__(
        self,
        batch_size: int = 64,
        num_workers: int | None = None,
        pin_memory: bool | None = None,
        weighted_sampling: bool = False,
    ) -> None:
        super().__init__()
        if batch_size < 1 or (num_workers or 0) < 0:
            given = f"{batch_size} and {num_workers}"
            raise UserError(f"data.batch_size must be 1 or more and data.num_workers 0 or more, but they are {given}.")
        self.batch_size, self.weighted_sampling = batch_size, weighted_sampling
        self.num_workers = choose_workers() if num_workers is None else num_workers
        self.pin_memory = torch.accelerator.is_available() if pin_memory is None else pin_memory
        self.position = (0, 0)  # epoch, and how many of its batches were trained on; a resumed run sets it
        self._datasets: dict[Split, MapDataset] = {}
        self.facts: dict[str, Any] = {}  # what the module was made with, set by the commands

    def make_dataset(self, split: Split) -> MapDataset:
        """Return the dataset of `split`; the same samples in every stage, rank and process."""
        raise NotImplementedError(f"{type(self).__name__} must define make_dataset(split).")

    def sample_ids(self, split: Split) -> list[str]:
        """Return a lasting name of every sample of `split`, by which a leak between splits is found."""
        raise NotImplementedError(f"{type(self).__name__} must define sample_ids(split).")

    def sample_weights(self) -> Tensor:
        """Return how often each training sample is drawn, float64: one over the size of its class.

        Raises:
            UserError: The dataset has no `labels`, an integer a sample.
        """
        labels = getattr(self.dataset("train"), "labels", None)
        if labels is None or labels.is_floating_point():
            raise UserError("data.weighted_sampling needs a dataset with integer labels; use false.")
        return 1 / torch.bincount(labels).double()[labels]

    def fact(self, name: str) -> Any:
        """Return the module's value of one of `provides`, or without a module the data's."""
        return self.facts[name] if name in self.facts else getattr(self, name)

    def make_sampler(self, data: MapDataset, **arguments: Any) -> EpochSampler:
        """Return the order in which `data` is loaded; `arguments` are the sampler's."""
        return EpochSampler(data, **arguments)

    def dataset(self, split: Split) -> MapDataset:
        """Return the dataset of `split`, made once."""
        if split not in self._datasets:
            self._datasets[split] = self.make_dataset(split)
        return self._datasets[split]

    def setup(self, stage: str) -> None:
        """Make what `stage` needs, so that faulty data is found before the first step."""
        needed: dict[str, list[Split]] = {"fit": ["train", "val"], "validate": ["val"], "test": ["test"]}
        for split in needed.get(stage, []):
            self.dataset(split)

    def loader(self, split: Split, data: MapDataset | None = None) -> DataLoader[dict[str, Any]]:
        """Return a loader over `split`, or over `data` in its place."""
        seed = int(os.environ.get("PL_GLOBAL_SEED", "42"))  # what seed_everything was given
        data = self.dataset(split) if data is None else data
        train = split == "train"
        rank, world_size = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        weights = self.sample_weights() if train and self.weighted_sampling else None
        sampler = self.make_sampler(data, train=train, seed=seed, rank=rank, world_size=world_size, weights=weights)
        if train:  # before the first iterator, which fetches ahead
            sampler.start = (self.position[0], self.position[1] * self.batch_size)
            sampler.set_epoch(self.position[0])
        return DataLoader(
            SeededDataset(data, seed),
            batch_size=self.batch_size,
            sampler=sampler,
            collate_fn=self.collate,
            num_workers=self.num_workers,
            # Workers that live on, and fetch ahead, keep an epoch's start from waiting for the first batch.
            persistent_workers=self.num_workers > 0,
            prefetch_factor=4 if self.num_workers else None,
            pin_memory=self.pin_memory,
            # A last training batch of a single sample would break BatchNorm.
            drop_last=train and len(sampler) % self.batch_size == 1,
            # Without one of its own, making an iterator would draw from the model's random state.
            generator=torch.Generator().manual_seed(seed),
        )

    def sample_batch(self) -> dict[str, Any]:
        """Return one real batch of the validation split, without a trainer."""
        self.prepare_data()
        workers, self.num_workers = self.num_workers, 0
        try:
            batch: dict[str, Any] = next(iter(self.loader("val")))
        finally:
            self.num_workers = workers
        return batch

    def train_dataloader(self) -> DataLoader[dict[str, Any]]:
        """Return the loader over the training split."""
        return self.loader("train")

    def val_dataloader(self) -> DataLoader[dict[str, Any]]:
        """Return the loader over the validation split."""
        return self.loader("val")

    def test_dataloader(self) -> DataLoader[dict[str, Any]]:
        """Return the loader over the test split."""
        return self.loader("test")
