"""YOURS: what holds for the demo's data and module beyond the contract."""

import os
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
import yaml
from PIL import Image
from torch.nn import functional as F

from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.image_classification import ImageFolderData
from {{ cookiecutter.package }}.image_classification.data import split_of
from {{ cookiecutter.package }}.reading.images import read_image

from conftest import DEFAULT, PLAIN

LATEST = Path("runs/latest")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return a folder of images as people have them: every mode, size and format, a folder per class."""
    generator = np.random.default_rng(0)
    modes = {"RGB": "jpg", "L": "png", "RGBA": "png", "P": "webp", "1": "bmp"}
    for name in ("red deer", "Füchse"):
        (tmp_path / "photos" / name / "2024").mkdir(parents=True)
        for index in range(40):
            mode, suffix = list(modes.items())[index % len(modes)]
            pixels = generator.integers(0, 255, (20 + index, 30, 3), dtype=np.uint8)
            folder = tmp_path / "photos" / name / ("2024" if index % 2 else "")
            Image.fromarray(pixels).convert(mode).save(folder / f"img_{index}.{suffix}")
    return tmp_path / "photos"


def test_ones_own_folder_is_one_flag(photos: Path):
    main(["fit", *PLAIN, f"--data.root={photos}", "--trainer.max_epochs=1"])
    config = yaml.safe_load((LATEST / "config.yaml").read_text())
    assert config["model"]["init_args"]["class_names"] == ["Füchse", "red deer"]
    (exported,) = onnxruntime.InferenceSession(LATEST / "model.onnx").get_inputs()
    assert exported.shape == ["batch", 3, 32, 32], "a fixed size is optimised better"
    main(["predict", f"--data.predict_root={photos / 'red deer'}"])
    assert len((LATEST / "predictions.csv").read_text(encoding="utf-8").splitlines()) == 41


def test_class_names_are_known_before_setup(photos: Path):
    assert ImageFolderData(root=str(photos)).class_names == ["Füchse", "red deer"]


def test_adding_files_moves_no_file_to_another_split(photos: Path):
    data = ImageFolderData(root=str(photos))
    before = {split: set(data.sample_ids(split)) for split in ("train", "val", "test")}
    for index in range(40, 60):
        shutil.copy(photos / "red deer/img_0.jpg", photos / f"red deer/img_{index}.jpg")
    for split, names in before.items():
        assert names < set(data.sample_ids(split)) or names == set(data.sample_ids(split))
    assert [split_of(f"img_{i}.jpg") for i in range(6)] == ["train", "train", "train", "train", "val", "test"]


def test_given_split_folders_are_used_and_missing_ones_taken_out_of_train(photos: Path):
    (photos / "train").mkdir()
    for name in ("red deer", "Füchse"):
        (photos / name).rename(photos / "train" / name)
    shutil.copytree(photos / "train", photos / "test")
    data = ImageFolderData(root=str(photos))
    assert all("/test/" in path for path in data.sample_ids("test"))
    assert len(data.sample_ids("test")) == 80
    assert len(data.sample_ids("train")) + len(data.sample_ids("val")) == 80
    assert not set(data.sample_ids("train")) & set(data.sample_ids("val"))


def test_images_become_rgb_squares_without_distortion(tmp_path: Path):
    wide = np.zeros((10, 30), dtype=np.uint8)
    wide[:, 10:20] = 255
    Image.fromarray(wide).save(tmp_path / "wide.png")
    image = read_image(tmp_path / "wide.png", 10)
    assert (image.shape, image.dtype) == ((3, 10, 10), torch.uint8)
    assert (image == 255).all(), "the middle square is white"


def test_the_cache_gives_what_decoding_gives_and_notices_changes(photos: Path):
    cached, decoded = (ImageFolderData(root=str(photos), cache=cache).dataset("val") for cache in (True, False))
    assert all(torch.equal(cached[i]["image"], decoded[i]["image"]) for i in range(len(decoded)))
    assert isinstance(getattr(cached.reader, "_images", None), np.memmap), "all workers and ranks share one file"
    path = Path(decoded[0]["path"])
    Image.new("RGB", (40, 40), "white").save(path)
    os.utime(path, ns=(1, 1))
    assert (ImageFolderData(root=str(photos)).dataset("val")[0]["image"] == 1).all()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda root: shutil.rmtree(root), "does not exist"),
        (lambda root: shutil.rmtree(root / "Füchse"), "only red deer"),
        (lambda root: (root / "empty").mkdir(), "holds no image"),
        (lambda root: next(root.rglob("*.jpg")).write_text("no image"), "cannot be read as an image"),
        (lambda root: next(root.rglob("*.png")).write_bytes(b""), "cannot be read as an image"),
    ],
)
@pytest.mark.parametrize("cache", ["true", "false"])
def test_faulty_data_is_named_before_training(photos: Path, damage, sentence: str, cache: str, capsys):
    damage(photos)
    with pytest.raises(SystemExit):
        main(["fit", *PLAIN, f"--data.root={photos}", f"--data.cache={cache}"])
    assert sentence in capsys.readouterr().err.splitlines()[-1]
    assert not list(Path("runs").glob("*/checkpoints/*"))


def test_a_truncated_image_is_named_by_a_worker_too(photos: Path, capsys):
    for path in photos.rglob("*.jpg"):
        path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(SystemExit):
        main(["fit", *PLAIN[:3], f"--data.root={photos}", "--data.cache=false", "--data.num_workers=1"])
    message = capsys.readouterr().err.splitlines()[-1]
    assert "cannot be read as an image" in message
    assert "Traceback" not in message


def test_other_classes_than_the_models_are_refused(photos: Path, capsys):
    main(["fit", *PLAIN, f"--data.root={photos}", "--trainer.max_epochs=1", "--export_onnx=false"])
    (photos / "Füchse").rename(photos / "Wölfe")
    with pytest.raises(SystemExit):
        main(["test"])
    assert "Wölfe" in capsys.readouterr().err.splitlines()[-1]


def test_logged_metrics_are_those_of_all_samples_of_their_split(build):
    """Against plain torch; batches of unequal size, so a mean of batch means would differ."""
    cli = build("--data.batch_size=48")
    cli.trainer.validate(cli.model, datamodule=cli.datamodule)
    data = cli.datamodule.dataset("val")
    with torch.no_grad():
        logits = cli.model.eval()(torch.stack([data[i]["image"] for i in range(len(data))]))
    labels = torch.stack([data[i]["label"] for i in range(len(data))])
    assert len(data) % 48, "the last batch must be smaller for this to show anything"
    logged = cli.trainer.callback_metrics
    assert logged["val/loss"] == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-4)
    assert logged["val/accuracy"] == pytest.approx((logits.argmax(1) == labels).float().mean().item(), rel=1e-5)
    scores = []
    for label in range(10):
        hit = ((logits.argmax(1) == label) & (labels == label)).sum().item()
        scores.append(2 * hit / max(1, (logits.argmax(1) == label).sum().item() + (labels == label).sum().item()))
    assert logged["val/macro_f1"] == pytest.approx(float(np.mean(scores)), rel=1e-4)


def test_the_network_sees_what_the_models_own_mean_and_deviation_make_of_an_image(build):
    model, seen = build("--model.mean=[0.5, 0.4, 0.3]", "--model.std=[0.5, 0.2, 0.1]").model, []
    model.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(torch.ones(1, 3, 32, 32))
    assert seen[0][0, :, 0, 0].tolist() == pytest.approx([1.0, 3.0, 7.0])


def test_training_and_validation_metrics_do_not_mix(build):
    cli = build("--trainer.max_epochs=1", "--trainer.limit_train_batches=2", "--trainer.limit_val_batches=1")
    counts: list[tuple[int, int]] = []
    metrics = cli.model.metrics

    def count(*_: object) -> None:
        """Read in validation, while the training metrics of the same epoch are still open."""
        counts.append(tuple(metrics[f"{split}_metrics"]["accuracy"].update_count for split in ("train", "val")))

    cli.model.on_validation_batch_end = count
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    assert counts[-1] == (2, 1), "two batches trained on and one validated, each counted by its own object"
    assert metrics["test_metrics"]["accuracy"].update_count == 0


def test_the_learning_rate_rises_and_then_falls_to_zero(build):
    cli = build("--trainer.max_epochs=2", "--trainer.limit_train_batches=20", "--trainer.limit_val_batches=0")
    rates: list[float] = []
    original = cli.model.on_train_batch_end = lambda *_: rates.append(cli.model.optimizers().param_groups[0]["lr"])
    assert original
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    assert len(rates) == 40
    assert max(rates) == pytest.approx(cli.model.learning_rate, rel=0.02)
    assert rates.index(max(rates)) <= 4
    assert rates[-1] < 0.01 * max(rates)


@pytest.mark.slow
def test_the_demo_reaches_its_accuracy():
    main(["fit"])
    main(["test"])
    metrics = yaml.safe_load((LATEST / "test_metrics.json").read_text())
    assert metrics["test/accuracy"] >= 0.97
    assert DEFAULT.exists()


def test_folds_share_train_and_val_out_evenly_by_class_and_leave_the_test_split_alone():
    plain = ImageFolderData()
    plain.prepare_data()
    folds = [ImageFolderData(fold=(number, 4)) for number in range(4)]
    held_out = [set(fold.sample_ids("val")) for fold in folds]
    everything = set(plain.sample_ids("train")) | set(plain.sample_ids("val"))
    assert set.union(*held_out) == everything and sum(map(len, held_out)) == len(everything)
    for fold, val in zip(folds, held_out, strict=True):
        assert set(fold.sample_ids("train")) == everything - val
        assert fold.sample_ids("test") == plain.sample_ids("test")
        counts = torch.bincount(torch.tensor([label for _, label in fold.files("val")]))
        total = torch.bincount(torch.tensor([label for _, label in plain.files("train") + plain.files("val")]))
        assert ((counts - total / 4).abs() < 1).all(), "a class is missing from a fold"


def test_classes_are_counted_as_fast_where_repeatable_kernels_are_asked_for(build):
    cli = build("--data.batch_size=4", "--trainer.deterministic=true")
    cli.model.log = cli.model.log_dict = lambda *arguments, **options: None
    batch = cli.datamodule.sample_batch()
    for step in (cli.model.training_step, cli.model.validation_step):
        with torch.profiler.profile() as profile:
            step(batch, 0)
        assert "aten::bincount" in {event.key for event in profile.key_averages()}
