"""Numbers that are not finite are caught with their cause; precision keeps what it must keep."""

import math

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.plugins import MixedPrecision

from {{ cookiecutter.package }}.practices import hardware
from {{ cookiecutter.package }}.practices.errors import UserError
from {{ cookiecutter.package }}.runs import new_run
from {{ cookiecutter.package }}.training import DEFAULT, TrainingCLI

from conftest import SHORT

QUICK = ("--data.batch_size=4", "--trainer.limit_val_batches=0", "--trainer.limit_train_batches=4")
ONE_EPOCH = (*QUICK, "--trainer.max_epochs=1")


class PoisonWeight(Callback):
    """Make one weight NaN before step `step`, and note whose samples are then trained on."""

    def __init__(self, step: int):
        self.step, self.names = step, []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == self.step:
            list(pl_module.network.parameters())[-1].data.view(-1)[0] = math.nan
            self.names = [str(name) for name in batch.get("path", batch.get("id", []))]


class Look(Callback):
    """Note the gradients of every step as the optimizer found them, and those that it started from."""

    def __init__(self):
        self.norms, self.left_over = [], []

    def on_before_backward(self, trainer, pl_module, loss):
        self.left_over += [name for name, p in pl_module.named_parameters() if p.grad is not None and p.grad.any()]

    def on_before_zero_grad(self, trainer, pl_module, optimizer):
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        if gradients:
            largest = max(float(gradient.abs().max()) for gradient in gradients)
            self.norms.append((float(torch.nn.utils.get_total_norm(gradients)), largest))


def parameters(module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def same(one, other) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_a_loss_that_is_not_finite_names_step_samples_and_layer_and_leaves_the_checkpoint():
    cli = TrainingCLI([*SHORT, "--trainer.max_epochs=3", "--trainer.logger=false"], DEFAULT, new_run)
    cli.trainer.callbacks.insert(0, poison := PoisonWeight(4))
    with pytest.raises(UserError) as caught:
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    names = [name for name, _ in cli.model.network.named_parameters()]
    sentence, layer = str(caught.value), names[-1].rpartition(".")[0]
    assert "at step 4," in sentence
    assert "the loss is not finite" in sentence
    assert f"first to go: the output of network.{layer}," in sentence
    assert len(poison.names) > 1
    assert all(name in sentence for name in poison.names)
    kept = torch.load(cli.run / "checkpoints/last.ckpt", weights_only=True)
    assert kept["global_step"] <= 4
    assert all(value.isfinite().all() for value in kept["state_dict"].values())


def test_a_gradient_that_is_not_finite_is_named_and_changes_no_weight(build):
    cli = build(*ONE_EPOCH)
    names = [name for name, _ in cli.model.named_parameters()]
    before = parameters(cli.model)
    # Of the first weight alone: the loss, and all that backward passes on the way there, are finite.
    dict(cli.model.named_parameters())[names[0]].register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(UserError, match=f"the gradient is not finite; first to go: the gradient of {names[0]};"):
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    assert same(before, parameters(cli.model))


def test_samples_of_an_earlier_part_of_an_accumulated_batch_are_the_ones_named(build):
    cli = build(*ONE_EPOCH, "--trainer.accumulate_grad_batches=4")
    seen = []

    class SpoilSecond(Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            seen.append([str(name) for name in batch.get("path", batch.get("id"))])

        def on_before_backward(self, trainer, pl_module, loss):
            assert not any(kept.requires_grad for _, kept in pl_module.finite_check.seen), "its graph is kept with it"
            if len(seen) == 2:
                loss.data.fill_(math.nan)

    cli.trainer.callbacks.append(SpoilSecond())
    with pytest.raises(UserError) as caught:
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    assert f"samples: {', '.join(seen[1])};" in str(caught.value)


@pytest.mark.parametrize(("algorithm", "column"), [("norm", 0), ("value", 1)])
def test_gradients_are_clipped_and_do_not_add_up_from_step_to_step(build, algorithm: str, column: int):
    clip = f"--trainer.gradient_clip_algorithm={algorithm}"
    cli = build(*ONE_EPOCH, "--trainer.gradient_clip_val=1e-3", clip)
    cli.trainer.callbacks.append(look := Look())
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    assert [norms[column] for norms in look.norms] == pytest.approx([1e-3] * len(look.norms), rel=1e-2)
    assert len(look.norms) >= 3
    assert not look.left_over


def scaled_trainer(scale: float, **options) -> Trainer:
    """Return a trainer with float16 and loss scaling, which on the CPU has to be asked for like this."""
    plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=scale))
    return Trainer(
        accelerator="cpu", devices=1, plugins=[plugin], max_epochs=1, limit_val_batches=0, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0,
        **options,
    )  # fmt: skip


def test_a_step_that_overflows_only_because_it_is_scaled_is_skipped_and_training_goes_on(build):
    cli = build(*QUICK)
    before = parameters(cli.model)
    trainer = scaled_trainer(2.0**40, limit_train_batches=1)
    trainer.fit(cli.model, datamodule=cli.datamodule)
    assert trainer.precision_plugin.scaler.get_scale() < 2.0**40
    assert same(before, parameters(cli.model))
    trainer = scaled_trainer(2.0**8, limit_train_batches=2)
    trainer.fit(cli.model, datamodule=cli.datamodule)
    assert not same(before, parameters(cli.model))
    assert all(value.isfinite().all() for value in parameters(cli.model).values())


def test_a_gradient_that_no_scale_can_mend_still_stops_the_run(build):
    cli = build(*QUICK)
    next(cli.model.parameters()).register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(UserError, match="gradient is not finite"):
        scaled_trainer(1.0).fit(cli.model, datamodule=cli.datamodule)


def test_gradients_are_clipped_after_they_are_unscaled(build):
    cli = build(*QUICK)
    trainer = scaled_trainer(2.0**8, limit_train_batches=3)
    trainer.callbacks.append(look := Look())
    trainer.fit(cli.model, datamodule=cli.datamodule)
    norms = [norm for norm, _ in look.norms]
    assert max(norms) == pytest.approx(1.0, rel=1e-2) or max(norms) < 1, "clipped at 1 while 256 times too large"
    assert max(norms) > 0.05, "clipped before the scale was taken out"


@pytest.mark.parametrize(
    ("precision", "weights"),
    [
        ("32-true", torch.float32),
        ("bf16-mixed", torch.float32),
        ("64-true", torch.float64),
        pytest.param(
            "16-mixed", torch.float32, marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
        ),
    ],
)
def test_every_precision_trains(build, precision: str, weights: torch.dtype):
    accelerator = "gpu" if precision == "16-mixed" else "cpu"
    cli = build(*ONE_EPOCH, f"--trainer.precision={precision}", f"--trainer.accelerator={accelerator}")
    before = parameters(cli.model)
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    after = parameters(cli.model)
    assert {p.dtype for p in after.values()} == {weights}
    assert all(p.isfinite().all() for p in after.values())
    assert not same({name: p.to(weights) for name, p in before.items()}, {n: p.cpu() for n, p in after.items()})


def test_outputs_and_loss_are_float32_under_autocast(build):
    cli = build()
    batch = cli.datamodule.sample_batch()
    half = []
    for layer in cli.model.network.modules():
        layer.register_forward_hook(lambda layer, inputs, output: half.append(output.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        output = cli.model(**cli.model.example_inputs(batch))
        loss = cli.model.training_step(batch, 0)
    assert torch.bfloat16 in half, "nothing was computed in half precision, so this test shows nothing"
    assert output.dtype is torch.float32
    assert loss.dtype is torch.float32


@pytest.mark.parametrize(
    ("accelerator", "cuda", "bfloat16", "expected"),
    [
        ("auto", True, True, "bf16-mixed"),
        ("gpu", True, False, "16-mixed"),
        ("auto", False, False, "32-true"),
        ("cpu", True, True, "32-true"),
    ],
)
def test_precision_is_chosen_by_what_the_device_computes_fast(monkeypatch, accelerator, cuda, bfloat16, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bfloat16)
    assert hardware.choose_precision(accelerator) == expected


def test_debug_runs_everything_once_on_the_cpu_and_names_the_operation_that_gave_nan(build):
    cli = build("--config=configs/debug.yaml")
    assert cli.trainer.fast_dev_run
    first = next(cli.model.parameters())
    cli.model.network.register_forward_hook(lambda _, inputs, output: output + (first * 0).sqrt().sum() * 0)
    with pytest.raises(RuntimeError, match="SqrtBackward0"):
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)


@pytest.mark.slow
def test_bfloat16_is_as_accurate_as_float32(build, monkeypatch):
    """Trains the demo twice; on your own data, set your own metric and difference."""
    accuracy = {}
    for precision in ("32-true", "bf16-mixed"):
        cli = build(f"--trainer.precision={precision}", "--trainer.max_epochs=12", "--trainer.num_sanity_val_steps=0")
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)
        accuracy[precision] = float(cli.trainer.callback_metrics["val/accuracy"])
    assert abs(accuracy["bf16-mixed"] - accuracy["32-true"]) <= 0.01, accuracy
    assert accuracy["32-true"] > 0.9
