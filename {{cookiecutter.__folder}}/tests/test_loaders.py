"""Loaders: workers that fit the machine, random draws that repeat, sampling that stays right on many devices."""

import os
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from {{ cookiecutter.package }}.practices import hardware
from {{ cookiecutter.package }}.practices.errors import UserError
from {{ cookiecutter.package }}.practices.loaders import BaseDataModule, EpochSampler


class Draws:
    """Samples that draw from every random generator there is; 90 of one class and 10 of another."""

    def __init__(self, labels: bool = True):
        if labels:
            self.labels = torch.tensor([0] * 90 + [1] * 10)

    def __len__(self):
        return 100

    def __getitem__(self, index: int):
        draws = [random.random(), float(np.random.rand()), float(torch.rand(()))]
        return {"draws": torch.tensor(draws), "index": torch.tensor(index)}


class Data(BaseDataModule):
    def make_dataset(self, split):
        return Draws(labels=split == "train")


def epoch_of(loader: DataLoader, epoch: int) -> dict[int, list[float]]:
    loader.sampler.set_epoch(epoch)
    batches = list(loader)
    keys = torch.cat([batch["index"] for batch in batches]).tolist()
    return dict(zip(keys, torch.cat([batch["draws"] for batch in batches]).tolist(), strict=True))


def test_augmentation_is_new_in_every_epoch_and_the_same_for_any_number_of_workers():
    alone, workers = Data(num_workers=0).loader("train"), Data(num_workers=2, batch_size=10).loader("train")
    assert alone.worker_init_fn is None, "a constant seed per worker repeats every epoch"
    first, second = epoch_of(alone, 0), epoch_of(alone, 1)
    assert len({tuple(draws) for draws in [*first.values(), *second.values()]}) == 200
    assert all(len(set(column)) == 200 for column in zip(*first.values(), *second.values(), strict=True))
    assert epoch_of(workers, 0) == first
    assert epoch_of(workers, 1) == second


def test_loading_leaves_the_random_state_of_training_alone():
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    list(Data(num_workers=0).loader("train"))
    assert states == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())


@pytest.mark.slow
def test_loaders_work_where_workers_are_started_anew():
    """As on macOS and Windows: nothing reaches the worker but what can be pickled."""
    loader = Data(num_workers=0, batch_size=50).loader("train")
    options = {"batch_size": 50, "sampler": loader.sampler, "num_workers": 1}
    spawned = DataLoader(loader.dataset, **options, multiprocessing_context="spawn", generator=loader.generator)
    assert epoch_of(spawned, 1) == epoch_of(loader, 1)


@pytest.mark.parametrize(("cpus", "workers"), [(1, 0), (2, 1), (5, 4), (64, 4)])
def test_workers_are_as_many_as_this_process_has_cpus_to_spare(monkeypatch, cpus: int, workers: int):
    monkeypatch.setattr(os, "cpu_count", lambda: 128)  # the machine's, of which a container gets a part
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cpus)), raising=False)
    assert hardware.choose_workers() == workers == Data().num_workers


@pytest.mark.parametrize(("cpus", "threads"), [(1, 1), (2, 1), (4, 2), (16, 12)])
def test_training_on_the_cpu_leaves_cpus_to_the_workers(monkeypatch, cpus: int, threads: int):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cpus)), raising=False)
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    hardware.share_cpus("cpu")
    assert not asked, "what the user sets wins"
    monkeypatch.delenv("OMP_NUM_THREADS")
    hardware.share_cpus("cpu")
    assert asked == [threads]
    monkeypatch.setattr(hardware, "uses_gpu", lambda accelerator: True)
    hardware.share_cpus("gpu")
    assert asked == [threads], "a GPU computes; the CPUs are free"


def test_every_command_shares_the_cpus(build, monkeypatch):
    asked: list[int] = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    build("--trainer.accelerator=cpu")
    assert len(asked) == 1


def test_workers_live_on_and_fetch_ahead():
    loader = Data(num_workers=2).loader("train")
    assert loader.persistent_workers
    assert loader.prefetch_factor == 4
    assert not Data(num_workers=0).loader("train").persistent_workers


@pytest.mark.parametrize("there", [True, False])
def test_memory_is_pinned_where_there_is_a_device_to_copy_to(monkeypatch, there: bool):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: there)
    assert Data().loader("train").pin_memory is there


def drawn(epoch: int, ranks: int, seed: int = 0) -> list[list[int]]:
    data = Data(weighted_sampling=True)
    weights, order = data.sample_weights(), []
    for rank in range(ranks):
        options = {"train": True, "seed": seed, "rank": rank, "world_size": ranks, "weights": weights}
        sampler = EpochSampler(data.dataset("train"), **options)
        sampler.set_epoch(epoch)
        order.append([index for _, index in sampler])
    return order


def test_weighted_sampling_draws_rare_classes_as_often_as_common_ones():
    rare = sum(index >= 90 for epoch in range(50) for index in drawn(epoch, 1)[0])
    assert 0.46 < rare / 5000 < 0.54
    loader = Data(weighted_sampling=True, num_workers=0).loader("train")
    assert 0.3 < sum(int((batch["index"] >= 90).sum()) for batch in loader) / 100 < 0.7
    plain = Data(num_workers=0).loader("train")
    assert sum(int((batch["index"] >= 90).sum()) for batch in plain) == 10


def test_weighted_sampling_is_one_draw_that_the_ranks_divide():
    (whole,) = drawn(3, 1)
    first, second = drawn(3, 2)
    assert [first, second] == [whole[0::2], whole[1::2]]
    assert first != second
    assert drawn(4, 1) != [whole]
    assert drawn(3, 1) == [whole]


def test_weighted_sampling_leaves_evaluation_as_it_is():
    data = Data(weighted_sampling=True, num_workers=0)
    assert torch.cat([batch["index"] for batch in data.loader("val")]).tolist() == list(range(100))


def test_weighted_sampling_without_classes_is_refused():
    data = Data(weighted_sampling=True)
    data.make_dataset = lambda split: Draws(labels=False)
    with pytest.raises(UserError, match="needs a dataset with integer labels"):
        data.loader("train")


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_share_an_epoch_without_overlap_and_shuffle_it_anew(ranks: int):
    orders = []
    for epoch in (0, 1):
        samplers = [EpochSampler(range(12), train=True, seed=1, rank=r, world_size=ranks) for r in range(ranks)]
        for sampler in samplers:
            sampler.set_epoch(epoch)
        orders.append([index for sampler in samplers for _, index in sampler])
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(12))
    assert orders[0] != orders[1]


def test_evaluation_on_many_ranks_repeats_no_sample():
    samplers = [EpochSampler(range(5), train=False, seed=1, rank=r, world_size=2) for r in range(2)]
    assert sorted(index for sampler in samplers for _, index in sampler) == list(range(5))


def test_a_rank_is_what_the_launcher_says():
    data = Data(num_workers=0)
    data.trainer = SimpleNamespace(global_rank=1, world_size=2)
    assert torch.cat([batch["index"] for batch in data.loader("val")]).tolist() == list(range(1, 100, 2))
