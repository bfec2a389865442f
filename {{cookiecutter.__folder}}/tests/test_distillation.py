"""A student learns from a frozen teacher, and keeps nothing of it."""

import signal
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.practices.errors import UserError
from {{ cookiecutter.package }}.practices.export import export_onnx
from {{ cookiecutter.package }}.techniques.distillation import Distillation, distillation_loss

from conftest import SHORT
from conftest_kill import STEPS, differences, forked_fit, latest, result

DISTIL = "--config=configs/distill.yaml"
FEW = ("--trainer.max_epochs=1", "--trainer.limit_train_batches=3", "--trainer.limit_val_batches=1")


@pytest.fixture
def teacher(build, tmp_path: Path) -> Path:
    """Return the checkpoint of another network than the student's."""
    torch.manual_seed(1)
    cli = build("--model.network.init_args.width=12")
    cli.trainer.strategy.connect(cli.model)
    cli.trainer.save_checkpoint(tmp_path / "teacher.ckpt")
    return tmp_path / "teacher.ckpt"


def distil(build, teacher: Path, *arguments: str, **options):
    """Return the student and its callback after a short training."""
    cli = build(*FEW, *arguments)
    cli.trainer.callbacks.append(distillation := Distillation(str(teacher), **options))
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    return cli, distillation


def test_the_loss_is_the_divergence_of_softened_probabilities_times_the_temperature_squared():
    torch.manual_seed(0)
    logits, taught = torch.randn(6, 5, dtype=torch.float64), torch.randn(6, 5, dtype=torch.float64)
    p, q = (taught / 3).softmax(1), (logits / 3).softmax(1)
    expected = 9 * (p * (p.log() - q.log())).sum(1).mean()
    assert distillation_loss(logits, taught, 3.0).item() == pytest.approx(expected.item(), rel=1e-9)
    assert distillation_loss(taught, taught, 3.0).item() == pytest.approx(0, abs=1e-12)


def test_gradients_are_as_large_at_every_temperature():
    """For a high temperature they tend to that of the logits' squared distance over the classes."""
    torch.manual_seed(0)
    logits, taught = torch.randn(6, 5), torch.randn(6, 5)
    norms = {}
    for temperature in (1.0, 4.0, 20.0):
        student = logits.clone().requires_grad_()
        distillation_loss(student, taught, temperature).backward()
        norms[temperature] = student.grad.norm().item()
    assert max(norms.values()) < 2 * min(norms.values()), norms


def test_the_student_follows_the_teacher_and_the_labels_by_their_weight(build, teacher: Path):
    cli = build()
    distillation = Distillation(str(teacher), temperature=2.0, weight=0.25)
    cli.trainer.strategy.connect(cli.model)
    cli.trainer.datamodule = cli.datamodule
    distillation.on_train_start(cli.trainer, cli.model)
    cli.model.log = lambda *_, **__: None
    batch = next(iter(cli.datamodule.loader("train")))
    cli.model.eval()
    logits = cli.model(**cli.model.example_inputs(batch))
    taught = type(cli.model).load_from_checkpoint(teacher, weights_only=True).eval()(**cli.model.example_inputs(batch))
    plain = F.cross_entropy(logits, batch["label"], label_smoothing=cli.model.label_smoothing)
    expected = 0.75 * plain + 0.25 * distillation_loss(logits, taught, 2.0)
    assert cli.model._train_loss(batch, logits).item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_teacher_is_frozen_in_evaluation_mode_and_in_nothing_that_is_kept(build, teacher: Path, tmp_path: Path):
    cli = build(*FEW)
    distillation = Distillation(str(teacher))
    cli.trainer.callbacks.append(distillation)
    taught = type(cli.model).load_from_checkpoint(teacher, weights_only=True)
    seen: list[torch.nn.Module] = []
    load = type(cli.model).load_from_checkpoint
    type(cli.model).load_from_checkpoint = lambda *a, **k: (seen.append(load(*a, **k)), seen[-1])[1]
    before = {name for name, _ in cli.model.named_parameters()}
    modes: set[bool] = set()
    cli.model.on_train_batch_end = lambda *_: modes.update(layer.training for layer in seen[0].modules())
    try:
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    finally:
        del type(cli.model).load_from_checkpoint
    assert modes == {False}, "a teacher in training mode says something else each time"
    assert not any(p.requires_grad or p.grad is not None for p in seen[0].parameters())
    for (name, was), now in zip(taught.named_parameters(), seen[0].parameters(), strict=True):
        assert torch.equal(was, now), f"{name} of the teacher moved"
    held = {id(p) for group in cli.trainer.optimizers[0].param_groups for p in group["params"]}
    assert not held & {id(p) for p in seen[0].parameters()}
    assert {name for name, _ in cli.model.named_parameters()} == before
    cli.trainer.save_checkpoint(tmp_path / "student.ckpt")
    assert set(torch.load(tmp_path / "student.ckpt", weights_only=True)["state_dict"]) == set(cli.model.state_dict())
    assert not hasattr(distillation, "teacher") and not cli.model.objectives


def test_without_weight_the_student_is_as_without_a_teacher(build, teacher: Path):
    """To the bit: that a teacher is loaded and asked draws no random number of the student's."""
    plain = build(*FEW)
    plain.trainer.fit(plain.model, datamodule=plain.datamodule)
    cli, _ = distil(build, teacher, weight=0.0)
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, cli.model.state_dict()[name]), name


def test_an_onnx_file_teaches_what_its_checkpoint_teaches(build, teacher: Path, tmp_path: Path):
    cli = build()
    model = type(cli.model).load_from_checkpoint(teacher, weights_only=True)
    facts = torch.load(teacher, weights_only=True)["hyper_parameters"]
    export_onnx(model, facts, cli.datamodule.sample_batch(), tmp_path / "teacher.onnx")
    students = [distil(build, path)[0].model for path in (teacher, tmp_path / "teacher.onnx")]
    for one, other in zip(*(student.parameters() for student in students), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_a_teacher_of_other_classes_or_inputs_is_refused(build, teacher: Path, tmp_path: Path):
    content = torch.load(teacher, weights_only=True)
    for name in build().datamodule.provides:
        there = content["hyper_parameters"] | {name: ["other", "things"]}
        torch.save(content | {"hyper_parameters": there}, tmp_path / "other.ckpt")
        with pytest.raises(UserError, match=rf"{name} of the teacher .* is \['other', 'things'\], of the student"):
            distil(build, tmp_path / "other.ckpt")
    for missing in ("none.ckpt", "none.onnx"):
        with pytest.raises(UserError, match=r"do(es)? not exist; give"):
            distil(build, tmp_path / missing)
    with pytest.raises(UserError, match="another run tomorrow"):
        Distillation("runs/latest")


def test_a_damaged_teacher_and_one_of_other_inputs_are_named(build, teacher: Path, tmp_path: Path):
    (tmp_path / "damaged.onnx").write_bytes(b"no model")
    with pytest.raises(UserError, match="is no ONNX file that can be run"):
        distil(build, tmp_path / "damaged.onnx")
    torch.save({"weight": torch.zeros(1)}, tmp_path / "weights.pt")
    with pytest.raises(UserError, match="is no checkpoint of a run"):
        distil(build, tmp_path / "weights.pt")
    content = torch.load(teacher, weights_only=True)
    content["state_dict"].popitem()
    torch.save(content, tmp_path / "half.ckpt")
    with pytest.raises(UserError, match=r"half\.ckpt|another network"):
        distil(build, tmp_path / "half.ckpt")


@pytest.mark.parametrize("kind", ["ckpt", "onnx"])
def test_a_student_of_half_precision_asks_its_teacher_in_full(build, teacher: Path, tmp_path: Path, kind: str):
    cli = build()
    model = type(cli.model).load_from_checkpoint(teacher, weights_only=True)
    facts = torch.load(teacher, weights_only=True)["hyper_parameters"]
    if kind == "onnx":
        export_onnx(model, facts, cli.datamodule.sample_batch(), tmp_path / "teacher.onnx")
    distil(build, tmp_path / f"teacher.{kind}", "--trainer.precision=bf16-true")


def test_a_training_step_that_leaves_the_teacher_out_is_refused(build, teacher: Path):
    cli = build(*FEW)
    cli.model.objective = lambda batch, outputs, loss: loss
    cli.trainer.callbacks.append(Distillation(str(teacher)))
    with pytest.raises(UserError, match=r"does not call self\.objective"):
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)


def test_a_student_is_tested_and_exported_without_its_teacher(teacher: Path):
    main(["fit", *SHORT, DISTIL, f"--trainer.callbacks.teacher={teacher}", "--export_onnx=false"])
    assert "train/distillation_loss" in (latest() / "metrics.csv").read_text(encoding="utf-8")
    teacher.unlink()
    main(["test"])
    main(["export"])
    assert (latest() / "model.onnx").is_file()


@pytest.mark.slow
def test_a_killed_student_ends_as_one_that_never_stopped(teacher: Path, monkeypatch, workspace: Path):
    fit = forked_fit(monkeypatch, workspace)
    arguments = [STEPS, DISTIL, f"--trainer.callbacks.teacher={teacher}"]
    code, text = fit(*arguments)
    assert code == 0, text
    expected = result(latest())
    assert fit(*arguments, at=("on_train_batch_end", 6))[0] == -signal.SIGKILL
    code, text = fit("--resume=latest")
    assert code == 0, text
    assert not differences(expected, result(latest()))
