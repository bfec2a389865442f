"""The doctor: a healthy project passes, and every check catches the faults that are planted for it."""

import json
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from lightning.pytorch import Trainer
from PIL import Image
from torch import nn
from torch.nn import functional as F

from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.practices.base_module import BaseModule
from {{ cookiecutter.package }}.practices.errors import UserError
from {{ cookiecutter.package }}.practices.loaders import BaseDataModule
from {{ cookiecutter.package }}.workbench import doctor
from {{ cookiecutter.package }}.workbench.doctor import CHECKS, Project, examine, machine

from conftest import PLAIN

SIZES = {"train": 120, "val": 40, "test": 40}


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show no GPU: the toy trains on the CPU, and that one is idle is a finding."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda *arguments: False)


class Corners:
    """Pictures, float32 (3, 8, 8), of a bright square in the corner that the label names."""

    def __init__(self, data: "ToyData", split: str) -> None:
        self.data, self.split = data, split

    def __len__(self) -> int:
        return SIZES[self.split]

    def __getitem__(self, index: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(1000 * list(SIZES).index(self.split) + index)
        image, label = 0.3 * torch.rand(3, 8, 8, generator=generator), index % 4
        image[:, 4 * (label // 2) :, 4 * (label % 2) :][:, :4, :4] += 0.6
        return self.data.change({"image": image, "label": torch.tensor(label)}, self.split, index)


class ToyData(BaseDataModule):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{"batch_size": 20, "num_workers": 0, "pin_memory": False, **options})
        self.change = lambda sample, split, index: sample

    def make_dataset(self, split):
        return Corners(self, split)

    def sample_ids(self, split):
        return [f"{split}-{index}" for index in range(SIZES[split])]


class ToyModule(BaseModule):
    """Every fault is a subclass, so that a checkpoint finds its class."""

    class_names = ("a", "b", "c", "d")

    def __init__(self, learning_rate: float = 3e-3) -> None:
        super().__init__(learning_rate=learning_rate)
        self.save_hyperparameters()
        convolution = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(4)]
        self.network = nn.Sequential(*convolution, nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, 4))

    def forward(self, image):
        return self.network(image)

    def example_inputs(self, batch):
        return {"image": batch["image"]}

    def loss(self, batch):
        return F.cross_entropy(self(batch["image"]), batch["label"])

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self.loss(batch))


def toy(module: type[ToyModule] = ToyModule, **trainer: Any) -> Any:
    """Return what stands for a TrainingCLI."""
    torch.manual_seed(0)
    options = {"accelerator": "cpu", "devices": 1, "logger": False, "max_epochs": 2, **trainer}
    config = SimpleNamespace(
        export_onnx=True,
        trainer=SimpleNamespace(accelerator="cpu", devices=1, precision="32-true", deterministic=True, logger=False),
    )
    trained = Trainer(enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, **options)
    return SimpleNamespace(datamodule=ToyData(), model=module(), trainer=trained, config=config, _data=ToyData)


FAULTS: dict[str, dict[str, tuple[Callable[..., Any], str]]] = {name: {} for name in CHECKS}


def fault(check: str, figure: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Plant a fault: a function of (cli, monkeypatch, folder) that changes `cli` or returns another module class.

    `check` must then warn or fail, with `figure` in its words.
    """

    def plant(change: Callable[..., Any]) -> Callable[..., Any]:
        FAULTS[check][change.__name__] = (change, figure)
        return change

    return plant


@fault("configuration", "is no folder")
def a_mistake_in_the_configuration(cli, monkeypatch, folder):
    def prepare_data():
        raise UserError("data.root is no folder.")

    cli.datamodule.prepare_data = prepare_data


@fault("files-decode", "cannot identify")
def a_file_that_is_no_image(cli, monkeypatch, folder):
    cli.datamodule.sample_ids = write_images(folder)
    Path(cli.datamodule.sample_ids("val")[3]).write_text("no image", encoding="utf-8")


@fault("files-decode", "truncated")
def a_file_cut_short(cli, monkeypatch, folder):
    cli.datamodule.sample_ids = write_images(folder)
    path = Path(cli.datamodule.sample_ids("test")[3])
    path.write_bytes(path.read_bytes()[:-40])


def write_images(folder: Path) -> Callable[[str], list[str]]:
    """Write an image file for each sample; return the function that lists those of a split."""
    generator = np.random.default_rng(0)
    paths = {split: [str(folder / f"{split}-{index}.png") for index in range(n)] for split, n in SIZES.items()}
    for path in chain(*paths.values()):
        Image.fromarray(generator.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(path)
    return paths.__getitem__


@fault("samples-read", "val-7: KeyError")
def a_sample_that_cannot_be_read(cli, monkeypatch, folder):
    cli.datamodule.change = lambda sample, split, index: {}["x"] if (split, index) == ("val", 7) else sample


@fault("finite-numbers", "image of train-5")
def a_sample_with_nan(cli, monkeypatch, folder):
    def change(sample, split, index):
        return {**sample, "image": sample["image"].log() * torch.nan} if (split, index) == ("train", 5) else sample

    cli.datamodule.change = change


@fault("batches", "image is torch.float64")
def doubles(cli, monkeypatch, folder):
    cli.datamodule.change = lambda sample, split, index: {**sample, "image": sample["image"].double()}


@fault("batches", "torch.float32 and torch.int64")
def labels_of_another_type_in_validation(cli, monkeypatch, folder):
    cli.datamodule.change = lambda s, split, index: {**s, "label": s["label"].float()} if split == "val" else s


@fault("batches", "scale images")
def images_of_0_to_255(cli, monkeypatch, folder):
    cli.datamodule.change = lambda sample, split, index: {**sample, "image": 255 * sample["image"]}


@fault("batches", "image is constant in training")
def black_images(cli, monkeypatch, folder):
    cli.datamodule.change = lambda sample, split, index: {**sample, "image": 0 * sample["image"]}


@fault("batches", "nothing to predict")
def no_target(cli, monkeypatch, folder):
    cli.datamodule.change = lambda sample, split, index: {"image": sample["image"]}


@fault("splits", "train and test share train-1")
def a_sample_in_two_splits(cli, monkeypatch, folder):
    own = cli.datamodule.sample_ids
    cli.datamodule.sample_ids = lambda split: ["train-1", *own(split)[1:]] if split == "test" else own(split)


@fault("splits", "differs when made again")
def splits_drawn_at_random(cli, monkeypatch, folder):
    drawn = {split: [f"{split}-{random.random()}" for _ in range(n)] for split, n in SIZES.items()}
    cli.datamodule.sample_ids = drawn.__getitem__


@fault("duplicates", "train-1 = test-1")
def equal_samples_in_two_splits(cli, monkeypatch, folder):
    sample = {"image": torch.ones(3, 8, 8), "label": torch.tensor(1)}
    cli.datamodule.change = lambda own, split, index: sample if (index, split) in ((1, "train"), (1, "test")) else own


@fault("duplicates", ".png = ")
def copies_of_a_file_in_two_splits(cli, monkeypatch, folder):
    cli.datamodule.sample_ids = write_images(folder)
    for index in range(8):
        shutil.copy(*(cli.datamodule.sample_ids(split)[index] for split in ("train", "val")))


@fault("repeatable", "image, read twice")
def a_generator_of_ones_own(cli, monkeypatch, folder):
    generator = np.random.default_rng()
    cli.datamodule.change = lambda sample, split, index: {**sample, "image": sample["image"] + generator.random()}


@fault("repeatable", "by two workers")
def another_sample_in_a_worker(cli, monkeypatch, folder):
    def change(sample, split, index):
        return sample if torch.utils.data.get_worker_info() is None else {**sample, "image": 2 * sample["image"]}

    cli.datamodule.change = change


@fault("sample-grid", "IndexError")
def a_label_without_a_name(cli, monkeypatch, folder):
    class Fault(ToyModule):
        class_names = ("a", "b", "c")

    return Fault


@fault("layer-shapes", "in layer network.7: mat1 and mat2")
def a_layer_that_does_not_fit(cli, monkeypatch, folder):
    cli.model.network.append(nn.Linear(5, 4))


@fault("layer-shapes", "goes in, (80, 1) comes out")
def the_batch_mixed_with_the_features(cli, monkeypatch, folder):
    class Fault(ToyModule):
        def forward(self, image):
            return self.network(image).reshape(-1, 1)

    return Fault


@fault("devices-and-types", "scale is a plain Tensor")
def a_tensor_that_is_no_buffer(cli, monkeypatch, folder):
    cli.model.network.scale = torch.ones(3)


@fault("devices-and-types", "heads is a plain Linear")
def a_list_of_layers(cli, monkeypatch, folder):
    cli.model.heads = [nn.Linear(3, 3)]


@fault("devices-and-types", "makes a tensor on the CPU")
def a_tensor_made_on_the_cpu(cli, monkeypatch, folder):
    class Fault(ToyModule):
        def forward(self, image):
            return self.network(image - torch.full((1, 3, 1, 1), 0.5))

    return Fault


@fault("devices-and-types", "mean is float64")
def a_double_buffer(cli, monkeypatch, folder):
    cli.model.register_buffer("mean", torch.zeros(3, dtype=torch.float64))


@fault("devices-and-types", "outputs are torch.bfloat16")
def outputs_of_half_precision(cli, monkeypatch, folder):
    class Fault(ToyModule):
        def forward(self, image):
            return self.network(image).bfloat16()

    return Fault


@fault("modes", "network.5 evaluates while training")
def dropout_switched_off(cli, monkeypatch, folder):
    cli.model.network[5].eval()


@fault("modes", "network.1 trains while evaluating")
def eval_that_does_not_reach_a_layer(cli, monkeypatch, folder):
    class Always(nn.BatchNorm2d):
        def train(self, mode: bool = True):
            return super().train(True)

    cli.model.network[1] = Always(8)


@fault("modes", "frozen network.1 still changes")
def frozen_batchnorm_that_learns(cli, monkeypatch, folder):
    cli.model.network[1].requires_grad_(False)


@fault("evaluation-repeats", "outputs differ by")
def dropout_in_evaluation(cli, monkeypatch, folder):
    class Fault(ToyModule):
        def forward(self, image):
            return F.dropout(self.network(image), 0.5)

    return Fault


@fault("evaluation-repeats", "seen changed")
def a_buffer_that_counts(cli, monkeypatch, folder):
    class Fault(ToyModule):
        def __init__(self, learning_rate: float = 3e-3) -> None:
            super().__init__(learning_rate)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, image):
            self.seen += len(image)
            return self.network(image)

    return Fault


@fault("batch-independence", "other neighbours change")
def a_mean_over_the_batch(cli, monkeypatch, folder):
    class Fault(ToyModule):
        def forward(self, image):
            outputs = self.network(image)
            return outputs - outputs.mean(0)

    return Fault


class Regression(ToyModule):
    """One output, (batch, 1), for targets of shape (batch,)."""

    def __init__(self, learning_rate: float = 3e-3) -> None:
        super().__init__(learning_rate)
        self.network[-1] = nn.Linear(32, 1)


@fault("broadcasting", "Using a target size")
def a_loss_that_broadcasts(cli, monkeypatch, folder):
    class Fault(Regression):
        def loss(self, batch):
            return F.mse_loss(self(batch["image"]), batch["label"].float())

    return Fault


@fault("broadcasting", "sub compares 7 samples with 7")
def a_metric_of_ones_own_that_broadcasts(cli, monkeypatch, folder):
    class Fault(Regression):
        def loss(self, batch):
            return F.mse_loss(self(batch["image"]), batch["label"].float()[:, None])

        def validation_step(self, batch, batch_idx):
            self.log("val/mae", (self(batch["image"]) - batch["label"]).abs().mean())

    return Fault


@fault("labels", "label 4 in test")
def a_label_without_an_output(cli, monkeypatch, folder):
    cli.datamodule.change = lambda s, split, index: {**s, "label": torch.tensor(4)} if split == "test" else s


@fault("labels", "'d' 0.0%")
def a_class_without_training_samples(cli, monkeypatch, folder):
    cli.datamodule.change = lambda s, split, index: {**s, "label": s["label"].clamp(max=2)}


@fault("labels", "'d' 0.8% to")
def a_rare_class(cli, monkeypatch, folder):
    cli.datamodule.change = lambda s, split, index: {**s, "label": s["label"].clamp(max=2 + (index == 3))}


@fault("gradients", "unused.weight gets none")
def a_layer_that_is_not_used(cli, monkeypatch, folder):
    cli.model.unused = nn.Linear(3, 3)


@fault("gradients", "network.0.weight gets none")
def a_detach_in_the_middle(cli, monkeypatch, folder):
    class Fault(ToyModule):
        def forward(self, image):
            return self.network[1:](self.network[:1](image).detach())

    return Fault


@fault("gradients", "frozen network.0.weight gets one")
def a_layer_unfrozen_by_a_step(cli, monkeypatch, folder):
    class Fault(ToyModule):
        def training_step(self, batch, batch_idx):
            self.network.requires_grad_(True)
            return super().training_step(batch, batch_idx)

    module = Fault()
    module.network[0].requires_grad_(False)
    cli.model = module


@fault("gradients", "ValueError: optimizer got an empty parameter list")
def everything_frozen(cli, monkeypatch, folder):
    cli.model.requires_grad_(False)


@fault("gradients", "gets only zeros")
def outputs_times_zero(cli, monkeypatch, folder):
    class Fault(ToyModule):
        def forward(self, image):
            return 0 * self.network(image)

    return Fault


@fault("start-loss", "guessing gives 1.386 (ln 4 is 1.386)")
def outputs_far_too_large(cli, monkeypatch, folder):
    cli.model.network[-1].weight.data.mul_(100)


@fault("start-loss", "the best constant")
def a_target_that_is_not_scaled(cli, monkeypatch, folder):
    class Fault(Regression):
        def loss(self, batch):
            return F.mse_loss(self(batch["image"])[:, 0], batch["label"])

    cli.datamodule.change = lambda s, split, index: {**s, "label": 1000 + 10 * s["label"].float()}
    return Fault


@fault("start-loss", "nan")
def a_loss_that_is_not_finite(cli, monkeypatch, folder):
    class Fault(ToyModule):
        def loss(self, batch):
            return super().loss(batch) * torch.tensor(-1.0).sqrt()

    return Fault


@fault("one-batch-by-heart", "the loss goes from")
def the_wrong_sign(cli, monkeypatch, folder):
    class Fault(ToyModule):
        def loss(self, batch):
            return 1 / super().loss(batch).detach() + 0 * self(batch["image"]).sum()

    return Fault


@fault("one-batch-by-heart", "Set model.learning_rate near 0.001")
def far_too_high_a_rate(cli, monkeypatch, folder):
    cli.model = ToyModule(learning_rate=1e6)


@fault("contiguous-views", "view size is not compatible")
def a_view(cli, monkeypatch, folder):
    class Fault(ToyModule):
        def forward(self, image):
            return self.network(image.view(len(image), -1).reshape(image.shape))

    return Fault


@fault("contiguous-views", "image has strides")
def turned_inputs(cli, monkeypatch, folder):
    class Fault(ToyModule):
        def example_inputs(self, batch):
            return {"image": batch["image"].permute(0, 1, 3, 2)}

    return Fault


@fault("onnx-export", "the ONNX file differs")
def a_branch_that_the_export_fixes(cli, monkeypatch, folder):
    class Fault(ToyModule):
        def forward(self, image):
            return self.network(image) * (3 if torch.compiler.is_compiling() else 1)

    return Fault


@fault("checkpoint", "gives other outputs")
def what_a_checkpoint_lacks(cli, monkeypatch, folder):
    class Fault(ToyModule):
        scale = 1.0

        def forward(self, image):
            return self.scale * self.network(image)

    cli.model = Fault()
    cli.model.scale = 2.0


@fault("checkpoint", "missing 1 required positional argument")
def hyperparameters_that_are_not_saved(cli, monkeypatch, folder):
    class Fault(ToyModule):
        def __init__(self, width) -> None:
            super().__init__()
            self.hparams.clear()

    cli.model = Fault(3)


@fault("devices", "A GPU is idle")
def a_gpu_that_is_not_used(cli, monkeypatch, folder):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda *arguments: True)


@fault("devices", "Set trainer.devices to at most 1")
def more_processes_than_cpus(cli, monkeypatch, folder):
    monkeypatch.setattr(machine, "usable_cpus", lambda: 1)
    cli.trainer = toy(devices=2, strategy="ddp").trainer


@fault("devices", "bf16-mixed for 16-mixed")
def a_precision_that_the_device_lacks(cli, monkeypatch, folder):
    cli.trainer, cli.config.trainer.precision = toy(precision="bf16-mixed").trainer, "16-mixed"


@fault("devices", "Two runs will differ")
def runs_that_cannot_be_repeated(cli, monkeypatch, folder):
    cli.config.trainer.deterministic = False


@fault("batch-size", "0.1 steps of 1000")
def a_batch_larger_than_the_data(cli, monkeypatch, folder):
    cli.datamodule = ToyData(batch_size=1000)


@fault("batch-size", "3 to validate")
def hardly_anything_to_validate_on(cli, monkeypatch, folder):
    monkeypatch.setitem(SIZES, "val", 3)


@fault("loader-speed", "Set data.num_workers")
def slow_reading(cli, monkeypatch, folder):
    def change(sample, split, index):
        time.sleep(0.001)
        return sample

    cli.datamodule.change = change
    monkeypatch.setattr(machine, "usable_cpus", lambda: 1000)
    cli.trainer = toy(max_epochs=10_000).trainer


@fault("memory", "0 samples fit")
def no_memory(cli, monkeypatch, folder):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))


@fault("disk-space", "0.0 MB free")
def a_full_disk(cli, monkeypatch, folder):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))


@fault("logger", "W&B works offline")
def wandb_without_a_key(cli, monkeypatch, folder):
    options = SimpleNamespace(offline=False)
    cli.config.trainer.logger = SimpleNamespace(class_path="lightning.pytorch.loggers.WandbLogger", init_args=options)


@fault("logger", "which is not installed")
def a_logger_that_is_not_installed(cli, monkeypatch, folder):
    cli.config.trainer.logger = SimpleNamespace(class_path="lightning.pytorch.loggers.TensorBoardLogger")
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: None)


PLANTED = [(check, name) for check, planted in FAULTS.items() for name in planted]


def test_every_check_has_a_fault_to_catch():
    assert [check for check, planted in FAULTS.items() if not planted] == []


@pytest.mark.parametrize(("check", "name"), PLANTED, ids=[f"{check}-{name}" for check, name in PLANTED])
def test_a_planted_fault_is_caught(check: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    cli, (change, figure) = toy(), FAULTS[check][name]
    module = change(cli, monkeypatch, tmp_path)
    cli.model = module() if module else cli.model
    result = dict(examine(Project(lambda: cli, tmp_path), [check], 60))[check]
    assert result.state in ("warn", "fail")
    assert figure in f"{result.figure} {result.remedy}"
    assert result.remedy.endswith((".", "?")) or result.remedy.startswith("pip install")


def test_a_healthy_project_passes_and_stays_as_it_was(tmp_path: Path):
    cli = toy()
    cli.model.network[5].eval()  # a mode of the caller's own, and a weight
    before = {name: value.clone() for name, value in cli.model.state_dict().items()}
    modes = [layer.training for layer in cli.model.modules()]
    states = random.getstate()[1], np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    results = dict(examine(Project(lambda: cli, tmp_path), list(CHECKS), 120))
    assert list(results) == list(CHECKS)
    assert {name: r for name, r in results.items() if r.state != "pass"}.keys() == {"modes", "files-decode"}
    assert states == (random.getstate()[1], np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    assert modes == [layer.training for layer in cli.model.modules()]
    assert all(torch.equal(before[name], value) for name, value in cli.model.state_dict().items())
    assert all(parameter.grad is None for parameter in cli.model.parameters())
    assert cli.datamodule.num_workers == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["layers.txt", "samples.png", "workspace"]


def test_the_configured_project_passes(capsys, workspace: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(doctor, "LONGEST", 300.0)
    monkeypatch.setattr(doctor, "Project", partial(Project, seconds=2.0))
    main(["doctor", "--json", "--seconds=600", *PLAIN])
    results = json.loads(capsys.readouterr().out)
    assert list(results) == list(CHECKS)
    assert {name: result for name, result in results.items() if result["state"] == "fail"} == {}
    # Of the demos' classes some are rare, and that is said; a busy machine loads slowly.
    warned = {name: result for name, result in results.items() if result["state"] == "warn"}
    assert set(warned) <= {"labels", "loader-speed"}, warned
    assert [path.name for path in (workspace / "runs").iterdir()] == ["doctor"]


def test_a_fail_is_said_with_its_remedy_and_ends_in_1(capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "Project", partial(Project, seconds=1.0))
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--only=batch-size", *PLAIN, "--data.batch_size=100000"])
    output = capsys.readouterr().out
    assert end.value.code == 1
    assert "FAIL  batch-size" in output
    assert "-> Set data.batch_size to about" in output
    assert "1 fail" in output.splitlines()[-1]


def test_a_mistake_in_the_configuration_is_one_fail_and_nothing_follows(capsys):
    with pytest.raises(SystemExit) as end:
        main(["doctor", *PLAIN, "--data.root=nowhere"])
    lines = capsys.readouterr().out.splitlines()
    assert end.value.code == 1
    assert "nowhere" in next(line for line in lines if "FAIL" in line)
    assert sum("FAIL" in line for line in lines) == 1


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Hold up what hangs until the test is over: a thread that outlives the tests can crash the interpreter's end."""
    before, opened = set(threading.enumerate()), threading.Event()
    yield opened
    opened.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)


def test_data_that_hangs_does_not_hang_the_doctor(gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(doctor, "LONGEST", 1.0)
    cli = toy()
    cli.datamodule.change = lambda sample, split, index: gate.wait(60) if index == 3 else sample
    begin = time.monotonic()
    results = dict(examine(Project(lambda: cli, tmp_path), list(CHECKS), 60))
    assert time.monotonic() - begin < 30
    assert results["samples-read"].state == "fail"
    assert "no end in 1 s" in results["samples-read"].figure
    assert {results[name].state for name in ("batches", "layer-shapes", "gradients", "onnx-export")} == {"skip"}


def test_a_slow_network_is_no_fault(gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(doctor, "LONGEST", 2.0)
    cli = toy()
    monkeypatch.setattr(ToyModule, "forward", lambda self, image: gate.wait(60) and self.network(image))
    results = dict(examine(Project(lambda: cli, tmp_path, seconds=0.1), ["layer-shapes", "labels"], 60))
    assert "no end in 2 s" in results["layer-shapes"].figure
    assert {results[name].state for name in ("layer-shapes", "labels")} == {"skip"}


def test_unusual_batches_labels_and_loggers_are_no_fault(tmp_path: Path):
    cli = toy()

    def change(sample: dict, split: str, index: int) -> dict:
        ignored = {"label": torch.tensor(-100)} if index % 7 == 6 else {}
        return {**sample, **ignored, "about": {"place": torch.tensor(index), "name": "x"}}

    cli.datamodule.change = change
    cli.config.trainer.logger = [SimpleNamespace(class_path="lightning.pytorch.loggers.CSVLogger", init_args=None)] * 2
    names = ["labels", "broadcasting", "one-batch-by-heart", "logger"]
    results = dict(examine(Project(lambda: cli, tmp_path), names, 60))
    assert {name: results[name] for name in names if results[name].state != "pass"} == {}


def test_of_every_split_something_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(SIZES, "train", 100_000)
    results = dict(examine(Project(toy, tmp_path, seconds=0.1), ["samples-read"], 60))
    assert "40 of 40 val, 40 of 40 test" in results["samples-read"].figure


def test_when_the_time_is_over_no_check_begins(tmp_path: Path):
    results = dict(examine(Project(partial(time.sleep, 1), tmp_path), list(CHECKS), 0.2))
    assert {result.state for result in results.values()} == {"skip"}


def test_help_names_the_checks_and_the_options_of_fit(capsys):
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--help"])
    output = "".join(capsys.readouterr().out.split())  # lines are broken at hyphens
    assert not end.value.code
    assert all(word in output for word in (*CHECKS, "--seconds", "--trainer.max_epochs"))
