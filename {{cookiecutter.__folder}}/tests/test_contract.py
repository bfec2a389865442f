"""What must hold for whatever data and module configs/default.yaml names, yours included."""

import pickle
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback
from torch import Tensor

from {{ cookiecutter.package }}.practices.export import export_onnx

from conftest import DEFAULT, PROJECT, TrainingCLI

CONFIGS = PROJECT / DEFAULT.parent
OVERLAYS = sorted(str(path.relative_to(PROJECT)) for path in CONFIGS.glob("*.yaml") if path.stem != "default")
NETWORKS = sorted(str(path.relative_to(PROJECT)) for path in CONFIGS.glob("network/*.yaml"))


@pytest.fixture
def cli(build):
    """Return the configured data, module and trainer, with data at hand and a seed."""
    cli = build()
    cli.datamodule.prepare_data()
    return cli


def tensors(batch: dict) -> dict[str, Tensor]:
    return {name: value for name, value in batch.items() if isinstance(value, Tensor)}


def test_batches_are_dicts_of_finite_tensors_of_one_length(cli):
    for split in ("train", "val", "test"):
        batch = next(iter(cli.datamodule.loader(split)))
        assert isinstance(batch, dict)
        assert len({len(value) for value in batch.values()}) == 1, "every entry needs one value for each sample"
        for name, value in tensors(batch).items():
            assert value.dtype is not torch.float64, f"{name} is float64; models compute in float32"
            assert not value.is_floating_point() or value.isfinite().all(), f"{name} holds NaN or infinity"


def test_splits_are_disjoint_and_the_same_in_every_process(cli, build, monkeypatch):
    ids = {split: cli.datamodule.sample_ids(split) for split in ("train", "val", "test")}
    for split, names in ids.items():
        assert names, f"the {split} split is empty"
        assert len(set(names)) == len(names), f"the {split} split holds a sample twice"
    assert not set(ids["train"]) & set(ids["val"]), "samples that are trained on choose the checkpoint"
    assert not (set(ids["train"]) | set(ids["val"])) & set(ids["test"]), "samples of the test split are trained on"
    # Another seed, another draw before, another stage: nothing may move.
    torch.rand(17)
    other = build("--seed_everything=7").datamodule
    other.setup("test")
    other.setup("fit")
    assert {split: other.sample_ids(split) for split in ids} == ids


def test_a_sample_is_the_same_each_time_it_is_asked_for(cli):
    for split in ("train", "val"):
        first, second = (tensors(cli.datamodule.loader(split).dataset[0, 0]) for _ in range(2))
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_samples_are_tensors_in_a_dataset_that_workers_get_cheaply(cli):
    for split in ("train", "val"):
        loader = cli.datamodule.loader(split)
        arrays = [name for name, value in loader.dataset[0, 0].items() if isinstance(value, np.ndarray)]
        assert not arrays, f"{arrays} of a sample are NumPy; return tensors, which are stacked without another copy"
        lists = list(long_lists(loader.dataset.data, max(100, len(loader.dataset)), "dataset"))
        assert not lists, f"{lists} are long Python lists, copied item by item into every worker; keep arrays"
        try:
            pickle.dumps((loader.dataset, loader.sampler, loader.collate_fn))
        except Exception as error:
            pytest.fail(f"a worker cannot be given the {split} dataset ({error}); use no lambda, closure or open file")


def long_lists(thing: Any, size: int, where: str, depth: int = 3) -> Iterator[str]:
    if isinstance(thing, list | tuple | dict | set) and len(thing) >= size:
        yield where
    elif depth and hasattr(thing, "__dict__"):
        for name, value in vars(thing).items():
            yield from long_lists(value, size, f"{where}.{name}", depth - 1)


def test_inputs_that_vary_in_size_are_padded_to_few_sizes(cli):
    sizes: dict[tuple[str, int], set[int]] = {}
    for batch in islice(cli.datamodule.loader("train"), 8):
        for name, value in cli.model.example_inputs(batch).items():
            for dimension, size in enumerate(value.shape[1:], 1):
                sizes.setdefault((name, dimension), set()).add(size)
    odd = {key: found for key, found in sizes.items() if len(found) > 1 and any(size % 8 for size in found)}
    assert not odd, f"memory is fragmented by many sizes {odd}; pad them to a multiple of 8, 16 or 32"


def test_every_tensor_is_made_on_the_models_device(cli):
    """The meta device stands for a GPU: what is made on the CPU inside forward cannot be combined with it."""
    inputs = {name: value.to("meta") for name, value in cli.model.example_inputs(cli.datamodule.sample_batch()).items()}
    try:
        output = cli.model.to("meta")(**inputs)
    except (NotImplementedError, RuntimeError) as error:
        if "meta tensor" in str(error):  # values are looked at, which this device has none of
            pytest.skip(str(error))
        pytest.fail(f"forward makes a tensor on another device ({error}); use register_buffer or device=self.device")
    assert output.device.type == "meta", "forward moves its output to the CPU; Lightning does that where it is needed"


def test_no_weight_is_shared_by_accident(cli):
    names: dict[int, list[str]] = {}
    for name, parameter in cli.model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    shared = [same for same in names.values() if len(same) > 1]
    meant = getattr(cli.model, "shared_weights", [])
    assert shared == meant, "a layer is used twice; make two, or say so in the module: shared_weights = [[name, name]]"


def test_no_step_keeps_a_graph(cli):
    loss = cli.model.training_step(next(iter(cli.datamodule.loader("train"))), 0)
    assert loss.grad_fn is not None
    kept = [name for name, value in held(cli.model) if value.grad_fn is not None]
    assert not kept, f"{kept} keep the graph of every step until memory is full; keep .detach() of it"


def held(module: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, layer in module.named_modules():
        for attribute, value in vars(layer).items():
            many = value.values() if isinstance(value, dict) else value
            values = many if isinstance(value, dict | list | tuple) else [value]
            yield from ((f"{name}.{attribute}", one) for one in values if isinstance(one, Tensor))


def test_outputs_of_one_sample_do_not_depend_on_the_others(cli):
    inputs = cli.model.example_inputs(next(iter(cli.datamodule.loader("val"))))
    cli.model.eval()
    with torch.no_grad():
        # As many samples as outputs: a reduction without keepdim is then broadcast the wrong way, and nothing fails.
        count = min([32, *cli.model(**inputs).shape[1:2]])
        square = {name: value[:count] for name, value in inputs.items()}
        together = cli.model(**square)
        alone = [cli.model(**{name: value[i : i + 1] for name, value in square.items()}) for i in range(len(together))]
    message = "outputs change with the other samples of the batch; does a reduction over features lack keepdim=True?"
    assert torch.allclose(together, torch.cat(alone), rtol=1e-4, atol=1e-4), message


def test_every_trainable_parameter_gets_a_gradient(cli):
    batch = next(iter(cli.datamodule.loader("train")))
    cli.model.train()
    loss = cli.model.training_step(batch, 0)
    assert loss.requires_grad, "the loss depends on no parameter that is trained: all are frozen, or it was detached"
    loss.backward()
    unused = [name for name, p in cli.model.named_parameters() if p.requires_grad and p.grad is None]
    frozen = [name for name, p in cli.model.named_parameters() if not p.requires_grad and p.grad is not None]
    assert not unused, f"these parameters never learn (and DDP fails on them): {unused}"
    assert not frozen, f"these frozen parameters get a gradient: {frozen}"


def test_evaluation_is_deterministic_and_independent_of_the_batch(cli):
    inputs = cli.model.example_inputs(next(iter(cli.datamodule.loader("val"))))
    cli.model.eval()
    with torch.no_grad():
        whole, again = cli.model(**inputs), cli.model(**inputs)
        single = cli.model(**{name: value[:1] for name, value in inputs.items()})
    assert whole.dtype is torch.float32, "outputs must be float32 for the loss and the metrics"
    assert whole.isfinite().all()
    assert torch.equal(whole, again), "two evaluations differ: is there a Dropout that ignores self.training?"
    torch.testing.assert_close(whole[:1], single, rtol=1e-4, atol=1e-4, msg="a sample's output depends on its batch")


def test_a_step_of_training_changes_the_weights_and_stays_finite(build):
    cli = build("--trainer.fast_dev_run=true")
    before = {name: p.detach().clone() for name, p in cli.model.named_parameters() if p.requires_grad}
    cli.trainer.callbacks.append(look := Idle())
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    after = dict(cli.model.named_parameters())
    assert all(after[name].isfinite().all() for name in before)
    assert any(not torch.equal(after[name], value) for name, value in before.items())
    assert not look.idle, f"{look.idle} get a gradient but no optimizer has them; use torch.no_grad() or detach()"


class Idle(Callback):
    """Note the parameters that get a gradient which no optimizer uses."""

    def on_after_backward(self, trainer, pl_module):
        groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
        trained = {id(p) for group in groups for p in group["params"]}
        self.idle = [n for n, p in pl_module.named_parameters() if p.grad is not None and id(p) not in trained]


def test_a_few_batches_are_learnt_by_heart(build):
    cli = build("--trainer.overfit_batches=2", "--trainer.max_epochs=1", "--trainer.limit_val_batches=0")
    trainer, losses = cli.trainer, []
    for epochs in (1, 25):
        trainer.fit_loop.max_epochs = epochs
        trainer.fit(cli.model, datamodule=cli.datamodule)
        losses.append(float(trainer.callback_metrics["train/loss"]))
    assert losses[1] < 0.7 * losses[0], f"nothing is learnt: the loss went from {losses[0]:.3f} to {losses[1]:.3f}"


def test_a_checkpoint_loads_safely_and_gives_the_same_outputs(cli, tmp_path: Path):
    path = tmp_path / "model.ckpt"
    cli.trainer.strategy.connect(cli.model)
    cli.trainer.save_checkpoint(path)
    content = torch.load(path, weights_only=True)  # fails on anything but tensors and plain values
    assert "hyper_parameters" in content
    loaded = type(cli.model).load_from_checkpoint(path, weights_only=True)
    inputs = cli.model.example_inputs(next(iter(cli.datamodule.loader("val"))))
    with torch.no_grad():
        torch.testing.assert_close(loaded.eval()(**inputs), cli.model.eval()(**inputs), rtol=0, atol=0)


def test_the_onnx_export_computes_the_same(cli, tmp_path: Path):
    path = tmp_path / "model.onnx"
    export_onnx(cli.model, dict(cli.model.hparams), cli.datamodule.sample_batch(), path)
    assert [p.name for p in tmp_path.glob("model*")] == ["model.onnx"], "the export must be one file"


def test_module_and_data_share_no_hyperparameter_name(cli):
    shared = set(cli.model.hparams) & set(cli.datamodule.hparams)
    assert not shared, f"Lightning refuses to log {shared}, kept by both; save them in the module only"


def test_the_default_configuration_takes_whatever_machine_it_is_on():
    assert TrainingCLI([], DEFAULT).trainer.num_devices >= 1


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_overlay_is_accepted(build, overlay: str):
    cli = build(f"--config={overlay}", "--trainer.accelerator=cpu")
    assert not cli.config.trainer.sync_batchnorm, "Lightning has it for GPUs only and fails elsewhere"


@pytest.mark.parametrize("network", NETWORKS)
def test_every_network_configuration_works_on_a_batch(build, network: str):
    cli = build(f"--model.network={network}")
    inputs = {name: value[:2] for name, value in cli.model.example_inputs(cli.datamodule.sample_batch()).items()}
    with torch.no_grad():
        assert cli.model.eval()(**inputs).isfinite().all()
