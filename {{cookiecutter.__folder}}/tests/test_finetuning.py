"""Fine-tuning trains from the head downwards, and leaves what is frozen exactly as it was."""

import json
import signal
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback
from torch import nn

from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.practices.errors import UserError
from {{ cookiecutter.package }}.techniques.finetuning import FineTuning, Pretrained, find_stages, start_from

from conftest import PLAIN, SHORT
from conftest_kill import STEPS, differences, forked_fit, latest, result

HEAD = "--config=configs/finetune_head.yaml"
FEW = ("--trainer.limit_train_batches=2", "--trainer.limit_val_batches=1", "--trainer.enable_model_summary=false")


class Look(Callback):
    """Note, in every training step, what is trained, at which rates, and in which mode each layer is."""

    def __init__(self) -> None:
        self.rates: list[list[float]] = []
        self.trained: list[set[str]] = []
        self.weights: list[dict[str, torch.Tensor]] = []
        self.training: set[str] = set()

    def on_train_batch_start(self, trainer, pl_module, *args) -> None:
        """Before fine-tuning's own: what switched the modes since the last step must not matter."""
        pl_module.train()

    def on_before_optimizer_step(self, trainer, pl_module, optimizer) -> None:
        names = {id(p): name for name, p in pl_module.named_parameters()}
        self.rates.append([group["lr"] for group in optimizer.param_groups])
        self.trained.append({names[id(p)] for group in optimizer.param_groups for p in group["params"]})
        self.weights.append({name: p.detach().clone() for name, p in pl_module.named_parameters()})
        self.training |= {name for name, layer in pl_module.network.named_modules() if layer.training}


def tune(build, *arguments: str, **options):
    """Return module, what was noted and the state before, of a short training with FineTuning of `options`."""
    cli = build(*FEW, *arguments)
    if HEAD not in arguments:
        cli.trainer.callbacks.append(FineTuning(**options))
    cli.trainer.callbacks.insert(0, look := Look())
    before = {name: value.clone() for name, value in cli.model.state_dict().items()}
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    return cli.model, look, before


def test_the_head_alone_learns_and_the_optimizer_holds_nothing_else(build):
    """For longer than the other overlay's first stage, so that none may join."""
    model, look, before = tune(build, HEAD, "--trainer.max_epochs=4")
    head = find_stages(model.network)[0].name
    for name, parameter in model.named_parameters():
        mine = name.startswith(f"network.{head}.")
        assert parameter.requires_grad == mine, name
        assert torch.equal(parameter, before[name]) != mine, f"{name} {'did not learn' if mine else 'moved'}"
    assert all(names == {n for n, p in model.named_parameters() if p.requires_grad} for names in look.trained)
    assert len(look.trained) == 8


def test_what_is_frozen_is_in_evaluation_mode_in_every_step_and_its_buffers_stay(build):
    model, look, before = tune(build, HEAD, "--trainer.max_epochs=2", "--trainer.val_check_interval=1")
    head = set(find_stages(model.network)[0].parts)
    wrong = [name for name in look.training if not any(name == part or name.startswith(f"{part}.") for part in head)]
    assert not wrong, f"{wrong} are frozen, and were trained on by the batch's statistics or with dropout"
    moved = [n for n, b in model.network.named_buffers() if not torch.equal(b, before[f"network.{n}"])]
    assert not moved, f"the statistics of {moved} moved"


def test_frozen_batch_norm_computes_in_training_what_it_computes_in_evaluation(build):
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
            self.head = nn.Linear(4, 2)
            self.body[1].running_mean += 3

    module, images = build().model, torch.rand(8, 3, 5, 5)
    module.network = network = Network()
    tuning = FineTuning(depth=1)
    trainer = build().trainer
    tuning.setup(trainer, module, "fit")
    module.train()
    tuning.on_train_batch_start(trainer, module, {}, 0)
    trained = network.body(images)
    assert torch.allclose(trained, network.eval().body(images)), "training would differ from evaluation"
    assert network.body[1].running_mean.tolist() == [3.0] * 4


@pytest.mark.parametrize("schedule", ["warmup_cosine", "one_cycle", "plateau", "constant"])
def test_stages_join_from_the_head_downwards_at_lower_rates_that_follow_the_schedule(build, schedule: str):
    options = {"epochs_per_stage": 1, "rate_decay": 0.5}
    arguments = ("--trainer.max_epochs=4", f"--model.schedule={schedule}", "--model.warmup_share=0.3")
    model, look, _ = tune(build, *arguments, **options)
    stages = find_stages(model.network)[:3]
    for step, names in enumerate(look.trained):
        for index, stage in enumerate(stages):
            mine = {n for n in names if any(n.startswith(f"network.{part}.") for part in stage.parts)}
            assert bool(mine) == (step // 2 >= index), f"{stage.name} in step {step}"
            moved = {n for n in mine if step < 7 and not torch.equal(look.weights[step + 1][n], look.weights[step][n])}
            assert moved == (mine if step < 7 else set()), "what the optimizer has just been given learns at once"
    for rates in look.rates:
        assert rates == pytest.approx([rates[0] * 0.5 ** (i // 2) for i in range(len(rates))])
    if schedule not in ("constant", "plateau"):
        assert len({rates[-1] for rates in look.rates}) > 4, "the lowest stage's rate follows the schedule"


def test_stages_can_be_named_and_a_wrong_name_lists_the_right_ones(build):
    head, *below = find_stages(build().model.network)
    _, look, _ = tune(build, "--trainer.max_epochs=1", stages=[below[0].name], depth=None)
    assert look.trained[0] and all(name.startswith(f"network.{below[0].name}.") for name in look.trained[0])
    with pytest.raises(UserError, match=rf"'hed', but must be one of .*{head.name}"):
        tune(build, stages=["hed"])
    sentence = f"depth of FineTuning is 99, but there are {1 + len(below)} stages: {head.name}"
    with pytest.raises(UserError, match=sentence):
        tune(build, depth=99)


def test_the_stages_of_a_network_are_its_parts_head_first():
    networks = pytest.importorskip("{{ cookiecutter.package }}.image_classification.networks")
    stages = find_stages(networks.TorchvisionNetwork(3, "resnet18"))
    names = [stage.name.removeprefix("network.") for stage in stages]
    assert names == ["fc", "layer4", "layer3", "layer2", "layer1", "conv1"]
    assert stages[-1].parts[1] == "network.bn1", "a normalisation belongs to what it normalises"
    names = [stage.name for stage in find_stages(networks.SmallCNN(3))]
    assert names == ["head", "features.2", "features.1", "features.0"]


def test_another_run_is_where_training_starts(capsys, caplog):
    main(["fit", *SHORT, "--export_onnx=false"])
    first = latest()
    with caplog.at_level("INFO"):
        main(["fit", *SHORT, HEAD, "--export_onnx=false", f"--trainer.callbacks.weights={first}"])
    before, after = (torch.load(run / "checkpoints/best.ckpt", weights_only=True) for run in (first, latest()))
    network = [n for n in before["state_dict"] if n.startswith("network.")]
    same = {n for n in network if torch.equal(before["state_dict"][n], after["state_dict"][n])}
    assert 0 < len(same) < len(network)
    said = caplog.text + capsys.readouterr().err
    assert f"{len(network)} of {len(network)} tensors taken; new: none" in said
    assert "Fine-tuning: " in said
    main(["test"])
    assert (latest() / "test_metrics.json").is_file()


def test_a_run_for_other_classes_leaves_the_head_and_one_for_other_inputs_is_refused(build, tmp_path: Path):
    main(["fit", *SHORT, "--export_onnx=false"])
    path = tmp_path / "other.ckpt"
    content = torch.load(latest() / "checkpoints/best.ckpt", weights_only=True)
    facts = content["hyper_parameters"]
    facts["class_names"] = list(reversed(facts["class_names"]))
    torch.save(content, path)
    cli = build()
    new = start_from(cli.model, path, cli.datamodule.fitted)
    assert new and all(name.startswith(find_stages(cli.model.network)[0].name) for name in new)
    for name in cli.datamodule.fitted:
        torch.save(content | {"hyper_parameters": facts | {name: ["other"]}}, path)
        with pytest.raises(UserError, match=f"{name} of .* is not this model's"):
            start_from(cli.model, path, cli.datamodule.fitted)


def test_a_run_for_images_of_another_mean_is_refused(build, tmp_path: Path):
    cli = build()
    if "mean" not in cli.model.hparams:
        pytest.skip("the inputs are no images")
    facts = dict(cli.model.hparams) | {"mean": [0.1, 0.2, 0.3]}
    torch.save({"state_dict": cli.model.state_dict(), "hyper_parameters": facts}, tmp_path / "other.ckpt")
    with pytest.raises(UserError, match=r"mean of .* is not this model's"):
        start_from(cli.model, tmp_path / "other.ckpt")
    torch.save({"state_dict": cli.model.state_dict()}, tmp_path / "bare.ckpt")
    assert start_from(cli.model, tmp_path / "bare.ckpt")


def test_a_resumed_run_needs_its_source_no_more(build, tmp_path: Path):
    cli = build(*FEW, "--trainer.max_epochs=1")
    torch.save(cli.model.network.state_dict(), tmp_path / "source.pt")
    cli.trainer.callbacks.append(Pretrained(str(tmp_path / "source.pt")))
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    cli.trainer.save_checkpoint(tmp_path / "half.ckpt")
    (tmp_path / "source.pt").unlink()
    cli = build(*FEW, "--trainer.max_epochs=2")
    cli.trainer.callbacks.append(Pretrained(str(tmp_path / "source.pt")))
    with pytest.raises(UserError, match="do not exist"):
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    cli = build(*FEW, "--trainer.max_epochs=2")
    cli.trainer.callbacks.append(Pretrained(str(tmp_path / "source.pt")))
    cli.trainer.fit(cli.model, datamodule=cli.datamodule, ckpt_path=tmp_path / "half.ckpt", weights_only=True)
    assert cli.trainer.current_epoch == 2


@pytest.mark.parametrize("depth", [None, 1])
def test_what_lies_beside_all_parts_joins_last(build, depth: int | None):
    module, trainer = build().model, build().trainer
    module.network.token = nn.Parameter(torch.zeros(3))  # as the class token of a vision transformer
    tuning = FineTuning(depth=depth)
    tuning.setup(trainer, module, "fit")
    assert not module.network.token.requires_grad
    tuning.load_state_dict({"trained": len(tuning.stages)})
    frozen = [name for name, parameter in module.named_parameters() if not parameter.requires_grad]
    assert ("network.token" in frozen) == (depth == 1)
    assert depth == 1 or not frozen


def test_an_optimizer_that_no_stage_could_join_is_refused_before_the_first_step(build, monkeypatch):
    cli = build(*FEW)
    monkeypatch.setattr(cli.model, "configure_optimizers", lambda: torch.optim.SGD(cli.model.parameters(), 0.1))
    cli.trainer.callbacks.append(FineTuning())
    with pytest.raises(UserError, match=r"makes 1 parameter groups, but fine-tuning needs the \d+"):
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)


def test_latest_is_refused_as_it_will_be_the_run_that_begins(capsys):
    with pytest.raises(SystemExit):
        main(["fit", *PLAIN, HEAD, "--trainer.callbacks.weights=runs/latest"])
    assert "will be another run tomorrow" in capsys.readouterr().err.splitlines()[-1]


def tuning(**options) -> str:
    path = "{{ cookiecutter.package }}.techniques.finetuning.FineTuning"
    return "--trainer.callbacks=" + json.dumps([{"class_path": path, "init_args": options}])


def test_a_run_killed_around_an_unfreezing_ends_as_one_that_never_stopped(monkeypatch, workspace: Path):
    fit = forked_fit(monkeypatch, workspace)
    arguments = [STEPS, tuning(epochs_per_stage=1)]
    code, text = fit(*arguments)
    assert code == 0, text
    expected = result(latest())
    for point in [("on_train_epoch_start", 2), ("on_train_batch_end", 6)]:
        assert fit(*arguments, at=point)[0] == -signal.SIGKILL, f"{point} was not reached"
        code, text = fit("--resume=latest")
        assert code == 0, f"{point}: {text}"
        assert not differences(expected, result(latest())), point


RANKS = """
import json
import torch
from lightning.pytorch import Callback

class Ranks(Callback):
    def on_train_end(self, trainer, pl_module):
        values = {name: p.double().sum().item() for name, p in pl_module.named_parameters()}
        with open(f"rank-{trainer.global_rank}.json", "w") as file:
            json.dump(values, file)
"""


@pytest.mark.slow
def test_two_processes_agree_on_what_was_unfrozen(command, workspace: Path):
    """DDP synchronises what needed a gradient when it was set up; what joins later must not be left out."""
    (workspace / "ranks.py").write_text(RANKS)
    callbacks = [*json.loads(tuning(epochs_per_stage=1).partition("=")[2]), {"class_path": "ranks.Ranks"}]
    arguments = ["--config=configs/ddp.yaml", "--trainer.devices=2", f"--trainer.callbacks={json.dumps(callbacks)}"]
    arguments += ["--trainer.accelerator=cpu", "--trainer.max_epochs=3", "--data.num_workers=0"]
    done = command("fit", *arguments, *FEW, "--export_onnx=false", timeout=600, PYTHONPATH=str(workspace))
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = (json.loads(Path(f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first == second, "each rank went its own way"
