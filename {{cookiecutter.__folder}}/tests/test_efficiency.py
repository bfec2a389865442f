"""Memory, speed and averaged weights: what saves one of them changes nothing else."""

import copy
import json
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelSummary
from torch import nn

from {{ cookiecutter.package }}.mistakes import explain
from {{ cookiecutter.package }}.practices.efficiency import checkpoint_blocks
from {{ cookiecutter.package }}.runs import new_run
from {{ cookiecutter.package }}.training import DEFAULT, TrainingCLI, fit

from conftest import PLAIN, SHORT

RUN = Path("runs/latest")


class Gradients(Callback):
    """Keep the gradients of the first optimizer step."""

    def __init__(self):
        self.first = None

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.first = self.first or {n: p.grad.clone() for n, p in pl_module.named_parameters() if p.grad is not None}


def first_gradients(build, *arguments: str) -> dict[str, torch.Tensor]:
    cli = build("--trainer.max_epochs=1", "--trainer.limit_val_batches=0", *arguments)
    cli.trainer.callbacks.append(look := Gradients())
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    return look.first


@pytest.mark.parametrize(("normalization", "equal"), [("group", True), ("batch", False)])
def test_two_half_batches_are_one_batch_to_group_norm_but_not_to_batch_norm(build, normalization: str, equal: bool):
    pytest.importorskip("{{ cookiecutter.package }}.image_classification")
    network = (f"--model.network.normalization={normalization}", "--model.network.dropout=0")
    whole = first_gradients(build, *network, "--data.batch_size=16", "--trainer.limit_train_batches=1")
    halves = ("--data.batch_size=8", "--trainer.limit_train_batches=2", "--trainer.accumulate_grad_batches=2")
    parts = first_gradients(build, *network, *halves)
    largest = max(float(value.abs().max()) for value in whole.values())
    difference = max(float((parts[name] - whole[name]).abs().max()) for name in whole)
    assert (difference < 1e-4 * largest) is equal, "BatchNorm's statistics are of the half that it sees"


def test_accumulation_steps_once_for_several_batches_and_drops_no_rest(build):
    cli = build("--trainer.max_epochs=1", "--trainer.limit_val_batches=0", "--data.batch_size=4",
                "--trainer.limit_train_batches=7", "--trainer.accumulate_grad_batches=3")  # fmt: skip
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    assert cli.trainer.global_step == 3


def blocks() -> nn.Module:
    def block(width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Dropout(0.3), nn.Linear(64, 8))

    return nn.ModuleDict({"layers": nn.Sequential(block(8), block(8), block(8)), "head": nn.Linear(8, 2)})


def pass_through(model: nn.Module, inputs: torch.Tensor) -> int:
    """Run forward and backward, and return how many bytes were kept between the two."""
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    torch.manual_seed(0)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model["head"](model["layers"](inputs)).square().sum()
    before_backward = sum(kept.values())
    loss.backward()
    return before_backward


def test_checkpointed_blocks_keep_less_and_give_equal_gradients_and_statistics():
    plain, inputs = blocks(), torch.randn(256, 8)
    checkpointed = copy.deepcopy(plain)
    assert checkpoint_blocks(checkpointed) == 3
    assert checkpoint_blocks(checkpointed) == 3, "a second time must change nothing"
    assert plain.state_dict().keys() == checkpointed.state_dict().keys()
    assert pass_through(checkpointed, inputs) < 0.3 * pass_through(plain, inputs)
    for (name, one), other in zip(plain.named_parameters(), checkpointed.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, msg=name)
    for (name, one), other in zip(plain.named_buffers(), checkpointed.buffers(), strict=True):
        assert torch.equal(one, other), f"{name} counted a batch twice"
    copied = copy.deepcopy(checkpointed)  # as averaging of weights does
    assert copied["layers"][0].forward.args[0] is copied["layers"][0]


def test_gradient_checkpointing_is_one_flag_and_changes_no_gradient(build):
    pytest.importorskip("{{ cookiecutter.package }}.image_classification")
    quick = ("--data.batch_size=8", "--trainer.limit_train_batches=1")
    plain = first_gradients(build, *quick)
    cli = build("--model.gradient_checkpointing=true", "--trainer.fast_dev_run=true")
    cli.model.configure_model()
    assert any("forward" in vars(layer) for layer in cli.model.network.modules())
    flagged = first_gradients(build, *quick, "--model.gradient_checkpointing=true")
    for name in plain:
        torch.testing.assert_close(flagged[name], plain[name], msg=name)


def test_a_full_gpu_is_explained_with_what_to_do_in_order():
    sentence = explain(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    cures = ["data.batch_size", "accumulate_grad_batches", "trainer.precision", "gradient_checkpointing"]
    assert [sentence.index(cure) for cure in cures] == sorted(sentence.index(cure) for cure in cures)
    assert "2.00 GiB" in sentence


def test_checkpoints_have_the_same_names_compiled_or_not(build):
    plain, compiled = build().model, build("--model.compile_network=true").model
    compiled.configure_model()
    assert compiled.network._compiled_call_impl is not None, "the network is not compiled"
    assert compiled.state_dict().keys() == plain.state_dict().keys()
    plain.configure_model()
    assert plain.network._compiled_call_impl is None, "compiling is to be asked for"


@pytest.mark.slow
def test_a_compiled_run_is_loaded_without_compiling(build, tmp_path: Path):
    cli = build("--model.compile_network=true", "--trainer.max_epochs=1", "--trainer.limit_train_batches=2")
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    cli.trainer.save_checkpoint(tmp_path / "model.ckpt")
    loaded = type(cli.model).load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True).eval()
    inputs = loaded.example_inputs(cli.datamodule.sample_batch())
    with torch.no_grad():
        torch.testing.assert_close(loaded(**inputs), cli.model.eval()(**inputs), rtol=1e-4, atol=1e-4)


def test_evaluation_builds_no_graph(build):
    cli = build("--trainer.limit_val_batches=1")
    seen = []
    cli.model.network.register_forward_hook(lambda *_: seen.append(torch.is_inference_mode_enabled()))
    cli.trainer.validate(cli.model, datamodule=cli.datamodule)
    assert seen == [True]


def test_averaged_weights_are_what_is_validated_kept_and_exported_and_overlays_add_up(tmp_path: Path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("trainer: {callbacks+: [{class_path: lightning.pytorch.callbacks.ModelSummary}]}")
    overlays = ["--config=configs/ema.yaml", f"--config={mine}"]
    arguments = [*SHORT, *overlays, "--trainer.max_epochs=2", "--trainer.logger=false", "--model.learning_rate=0.05"]
    cli = TrainingCLI(arguments, DEFAULT, new_run)
    kinds = [type(callback) for callback in cli.trainer.callbacks]
    assert {EMAWeightAveraging, ModelSummary} <= set(kinds), "an overlay replaced another's callbacks"
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    best = cli.trainer.checkpoint_callbacks[0]
    kept = torch.load(best.best_model_path, weights_only=True)
    averaged, last = kept["state_dict"], kept["current_model_state"]
    assert averaged.keys() == last.keys() == cli.model.state_dict().keys()
    assert any(not torch.equal(averaged[name], last[name]) for name in averaged)
    # What is loaded by default, for export too, is the average, and it is what was validated.
    loaded = type(cli.model).load_from_checkpoint(best.best_model_path, weights_only=True)
    assert all(torch.equal(value, averaged[name]) for name, value in loaded.state_dict().items())
    plain = TrainingCLI([*SHORT, "--trainer.logger=false"], DEFAULT)
    (metrics,) = plain.trainer.validate(loaded, datamodule=plain.datamodule)
    assert metrics[best.monitor] == pytest.approx(float(best.best_model_score), rel=1e-5)


def test_the_profile_is_a_trace_that_viewers_open_and_the_devices_use_is_logged():
    fit([*PLAIN, "--config=configs/profile.yaml", "--trainer.limit_train_batches=3", "--trainer.logger=false",
         "--data.batch_size=4", "--export_onnx=false"])  # fmt: skip
    (trace,) = RUN.glob("*.pt.trace.json")
    names = {event.get("name", "") for event in json.loads(trace.read_text())["traceEvents"]}
    assert any("training_step" in name for name in names)
    assert any(name.startswith("aten::") for name in names)
    assert "DeviceStatsMonitor.on_train_batch_end/cpu_percent" in (RUN / "metrics.csv").read_text()
