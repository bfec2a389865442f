"""YOURS: what holds for the demo's data and module beyond the contract."""

import csv
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.mistakes import explain
from {{ cookiecutter.package }}.practices.errors import UserError
from {{ cookiecutter.package }}.practices.losses import LOSSES, focal_loss
from {{ cookiecutter.package }}.reading.masks import overlay, palette, read_mask, write_mask
from {{ cookiecutter.package }}.reading.tiling import new_labels, segment_tiles
from {{ cookiecutter.package }}.semantic_segmentation import MaskedImageData, data
from {{ cookiecutter.package }}.semantic_segmentation.networks import TorchvisionSegmenter, UNet

from conftest import PLAIN, SHORT

LATEST = Path("runs/latest")
SPLITS = ("train", "val", "test")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return images of every size and mode with masks as people have them: a disc of one class on another."""
    root = tmp_path / "photos"
    generator = np.random.default_rng(0)
    for index in range(40):
        height, width = 40 + index, 60
        rows, columns = np.mgrid[:height, :width]
        disc = (rows - height / 2) ** 2 + (columns - 30) ** 2 < 200
        labels = torch.from_numpy(np.where(disc, 1 + index % 2, 0))
        labels[:2] = 255
        pixels = (labels.numpy() % 255 * 90 + generator.integers(0, 40, (height, width))).astype(np.uint8)
        name = f"{'2024/' if index % 2 else ''}img_{index}"
        path = root / "images" / f"{name}.{('jpg', 'png')[index % 2]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).convert(("RGB", "L")[index % 2]).save(path)
        write_mask(root / "masks" / f"{name}.png", labels)
    (root / "classes.txt").write_text("ground\nred deer\nFüchse\n", encoding="utf-8")
    return root


def test_ones_own_folder_is_one_flag_and_predictions_are_masks_of_the_images_sizes(photos: Path):
    main(["fit", *SHORT, f"--data.root={photos}"])
    config = yaml.safe_load((LATEST / "config.yaml").read_text())
    assert config["model"]["init_args"]["class_names"] == ["ground", "red deer", "Füchse"]
    main(["predict", f"--data.predict_root={photos / 'images'}", "--model.overlays=true"])
    main(["predict"])
    rows = list(csv.DictReader((LATEST / "predictions.csv").open(newline="", encoding="utf-8")))
    assert len(rows) == 40
    for row in rows:
        with Image.open(row["path"]) as image, Image.open(LATEST / "predictions" / row["mask"]) as mask:
            assert mask.size == image.size
            labels = np.array(mask)
        assert labels.max() <= 2
        shares = [float(row[f"share_{name}"]) for name in ("ground", "red deer", "Füchse")]
        assert sum(shares) == pytest.approx(1, abs=1e-5)
        assert shares == pytest.approx(np.bincount(labels.ravel(), minlength=3) / labels.size, abs=0.05)
        assert (LATEST / "predictions" / row["mask"].replace(".png", "-overlay.png")).is_file()
    assert {path.suffix for path in (LATEST / "predictions-2").rglob("*.*")} == {".png"}
    assert not list((LATEST / "predictions-2").rglob("*overlay*")), "pictures are written when asked for"


def test_predictions_go_into_the_folder_of_the_run_wherever_it_lies(tmp_path: Path):
    main(["fit", *SHORT, "--export_onnx=false"])
    run = Path(shutil.move(LATEST.resolve(), tmp_path / "moved"))
    main(["predict", "--run", str(run)])
    assert list((run / "predictions").glob("*.png"))
    assert not list(Path("runs").rglob("*.png"))


def test_images_and_masks_are_pairs_split_for_ever(photos: Path):
    made = MaskedImageData(root=str(photos))
    before = {split: set(made.sample_ids(split)) for split in SPLITS}
    assert sum(map(len, before.values())) == 40
    for index in range(40, 60):
        for kind, suffix in (("images", "jpg"), ("masks", "png")):
            shutil.copy(photos / kind / f"img_0.{suffix}", photos / kind / f"img_{index}.{suffix}")
    for split, names in before.items():
        assert names <= set(made.sample_ids(split))
    assert sum(len(made.sample_ids(split)) for split in SPLITS) == 60
    for image, mask, name in made.files("train"):
        assert Path(image).stem == Path(mask).stem == Path(name).name
        assert ("2024" in image) == ("2024" in mask) == ("2024" in name)


def test_given_split_folders_are_used_and_missing_ones_taken_out_of_train(photos: Path):
    for split in ("train", "test"):
        for kind in ("images", "masks"):
            shutil.copytree(photos / kind, photos / split / kind)
    made = MaskedImageData(root=str(photos))
    assert all("/test/" in path for path in made.sample_ids("test"))
    assert len(made.sample_ids("test")) == len(made.sample_ids("train")) + len(made.sample_ids("val")) == 40
    assert not set(made.sample_ids("train")) & set(made.sample_ids("val"))


def test_the_cache_gives_what_decoding_gives_and_notices_a_changed_mask(photos: Path):
    cached, decoded = (MaskedImageData(root=str(photos), cache=cache).dataset("val") for cache in (True, False))
    for index in range(len(decoded)):
        assert all(torch.equal(cached[index][name], decoded[index][name]) for name in ("image", "mask"))
    path = Path(decoded.masks.paths[0])
    write_mask(path, torch.ones(read_size(path), dtype=torch.int64))
    os.utime(path, ns=(1, 1))
    assert (MaskedImageData(root=str(photos)).dataset("val")[0]["mask"] == 1).all()


def read_size(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.height, image.width


def test_an_image_and_its_mask_move_together_and_labels_stay_labels(tmp_path: Path):
    """The image says its own label, so that both can be compared after any change."""
    labels = torch.zeros(64, 64, dtype=torch.int64)
    labels[8:30, 8:30], labels[34:60, 30:60] = 1, 2
    for kind, pixels in (("images", labels * 100), ("masks", labels)):
        for index in range(20):
            path = tmp_path / kind / f"{index}.png"
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(pixels.numpy().astype(np.uint8)).save(path)
    (tmp_path / "classes.txt").write_text("a\nb\nc\n")
    dataset = MaskedImageData(root=str(tmp_path)).dataset("train")
    torch.manual_seed(0)
    moved = 0
    for sample in (dataset[0] for _ in range(10)):
        mask, seen = sample["mask"], sample["image"][0] * 255 / 100
        assert set(mask.unique().tolist()) <= {0, 1, 2, 255}
        valid = mask != 255
        agreeing = ((seen - mask).abs() < 0.01)[valid].float().mean()
        assert agreeing > 0.93, "all but the seams, where the image's values are mixed"
        assert (seen[~valid] < 0.01).all(), "what comes in from outside is black, and ignored"
        moved += not torch.equal(mask, labels)
    assert moved >= 9
    assert torch.equal(MaskedImageData(root=str(tmp_path), augment=False).dataset("train")[0]["mask"], labels)


def test_a_mask_written_is_a_mask_read_and_has_colours_for_people(tmp_path: Path):
    labels = torch.arange(256).reshape(16, 16)
    write_mask(tmp_path / "a/mask.png", labels)
    assert torch.equal(read_mask(tmp_path / "a/mask.png", 16).long(), labels)
    with Image.open(tmp_path / "a/mask.png") as image:
        assert np.array_equal(np.array(image.convert("RGB")).reshape(256, 3), palette())
    assert len(np.unique(palette()[:40], axis=0)) == 40
    Image.fromarray(labels.numpy() > 127).save(tmp_path / "bits.png")
    assert read_mask(tmp_path / "bits.png", 16).unique().tolist() == [0, 1]


def test_an_overlay_colours_objects_and_leaves_the_rest():
    image, mask = torch.rand(3, 8, 8), torch.zeros(8, 8, dtype=torch.uint8)
    mask[:4], mask[4] = 3, 255
    picture, pixels = overlay(image, mask), (image * 255).round()
    assert torch.equal(picture[:, 4:].float(), pixels[:, 4:])
    colour = torch.from_numpy(palette()[3]).float()[:, None, None]
    torch.testing.assert_close(picture[:, :4].float(), (pixels[:, :4] + colour) / 2, atol=1, rtol=0)
    assert torch.equal(overlay(picture, torch.zeros(8, 8)), picture)


def reference_loss(kind: str, logits: np.ndarray, mask: np.ndarray, gamma: float = 2.0) -> float:
    """Return the loss pixel by pixel, in float64, straight from its formula."""
    odds = np.exp(logits - logits.max(1, keepdims=True))
    p = odds / odds.sum(1, keepdims=True)
    pixels = [(n, y, x) for n, y, x in np.ndindex(mask.shape) if mask[n, y, x] != 255]
    if kind == "dice_cross_entropy":
        return reference_loss("dice", logits, mask) + reference_loss("cross_entropy", logits, mask)
    if kind != "dice":
        right = [p[n, mask[n, y, x], y, x] for n, y, x in pixels]
        return float(np.mean([(1 - q) ** (gamma if kind == "focal" else 0) * -np.log(q) for q in right]))
    losses = []
    for label in set(mask[mask != 255].tolist()):
        hits = sum(p[n, label, y, x] for n, y, x in pixels if mask[n, y, x] == label)
        sizes = sum(p[n, label, y, x] + (mask[n, y, x] == label) for n, y, x in pixels)
        losses.append(1 - 2 * hits / sizes)
    return float(np.mean(losses))


@pytest.mark.parametrize("kind", list(LOSSES))
def test_losses_agree_with_their_formulas_and_ignore_what_is_to_be_ignored(kind: str):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2, 5, 6, 7, generator=generator)
    mask = torch.randint(0, 4, (2, 6, 7), generator=generator)  # no pixel of class 4
    mask[:, :2, 1:4] = 255
    logits.requires_grad_()
    loss = LOSSES[kind](logits, mask)
    assert loss.item() == pytest.approx(reference_loss(kind, logits.detach().double().numpy(), mask.numpy()), rel=1e-5)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient[:, :, :2, 1:4].eq(0).all(), "ignored pixels must teach nothing"
    assert gradient[:, :, 2:].abs().sum(1).gt(0).all()


@pytest.mark.parametrize("kind", list(LOSSES))
def test_losses_stay_finite_at_their_ends(kind: str):
    mask = torch.full((1, 4, 4), 255)
    logits = torch.randn(1, 3, 4, 4, requires_grad=True)
    loss = LOSSES[kind](logits, mask)
    assert loss.item() == 0, "a batch of ignored pixels has no loss, not NaN"
    mask[0, 0] = 1
    for scale in (1e-8, 1e4):  # as sure as float32 can be, of right and of wrong
        for label in (0, 1):
            sure = (scale * torch.eye(3)[label][None, :, None, None].expand(1, 3, 4, 4)).requires_grad_()
            loss = LOSSES[kind](sure, mask)
            (gradient,) = torch.autograd.grad(loss, sure)
            assert loss.isfinite() and gradient.isfinite().all()


def test_the_focal_loss_is_cross_entropy_without_focus_and_heeds_hard_pixels_with_it():
    logits, labels = torch.tensor([[4.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])
    assert torch.allclose(focal_loss(logits, labels, gamma=0), LOSSES["cross_entropy"](logits, labels))
    easy, hard = (focal_loss(logits[i : i + 1], labels[i : i + 1]) for i in (0, 1))
    easy_entropy, hard_entropy = (LOSSES["cross_entropy"](logits[i : i + 1], labels[i : i + 1]) for i in (0, 1))
    assert hard / easy > 100 * hard_entropy / easy_entropy


def test_logged_iou_is_that_of_all_pixels_of_the_split(build, photos: Path):
    """Against counting in NumPy; batches of unequal size, a class that is nowhere, ignored pixels."""
    (photos / "classes.txt").write_text("ground\nred deer\nFüchse\nwolf\n", encoding="utf-8")
    cli = build(f"--data.root={photos}", "--data.batch_size=4")
    with torch.no_grad():
        cli.model.network.head.bias[3] = -1e9  # no wolf is ever seen
    cli.trainer.validate(cli.model, datamodule=cli.datamodule)
    dataset = cli.datamodule.dataset("val")
    assert len(dataset) % 4
    images, masks = (torch.stack([dataset[i][name] for i in range(len(dataset))]) for name in ("image", "mask"))
    with torch.no_grad():
        logits = cli.model.eval()(images)
    predicted, truth, valid = logits.argmax(1).numpy(), masks.numpy(), masks.numpy() != 255
    assert not valid.all()
    logged, values = cli.trainer.callback_metrics, []
    for label, name in enumerate(["ground", "red deer", "Füchse"]):
        both = ((predicted == label) & (truth == label) & valid).sum()
        either = (((predicted == label) | (truth == label)) & valid).sum()
        values.append(both / either)
        assert logged[f"val/iou_{name}"] == pytest.approx(values[-1], rel=1e-5)
    assert logged["val/mean_iou"] == pytest.approx(np.mean(values), rel=1e-5)
    assert "val/iou_wolf" not in logged, "0 would say that all wolves were missed"
    pairs = [(logits[i : i + 1], masks[i : i + 1]) for i in range(len(masks))]
    expected = np.mean([LOSSES["dice_cross_entropy"](*pair).item() for pair in pairs])
    assert logged["val/loss"] == pytest.approx(expected, rel=1e-4), "the loss of an image depends on no other"


class Recording:
    """An array that can only be sliced, as zarr's, and that remembers the largest slice."""

    def __init__(self, pixels: np.ndarray) -> None:
        self.pixels, self.shape, self.largest = pixels, pixels.shape, 0

    def __getitem__(self, window):
        part = self.pixels[window]
        self.largest = max(self.largest, part.shape[0] * part.shape[1])
        return part


def test_tiles_give_what_the_whole_image_gives(tmp_path: Path):
    torch.manual_seed(0)
    network = UNet(5, width=4, levels=3).double()
    pixels = np.random.default_rng(0).integers(0, 255, (203, 150, 3), dtype=np.uint8)
    with torch.no_grad():
        image = torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255
        for norm in (module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)):
            norm.momentum = 1.0
        network.head.bias -= network(image.double()).mean((0, 2, 3))  # so that every class is somewhere
        whole = network.eval()(image.double()).argmax(1)[0].numpy()
    np.save(tmp_path / "scan.npy", pixels)
    recording = Recording(np.load(tmp_path / "scan.npy", mmap_mode="r"))
    differing = {}
    for overlap in (32, 0):
        labels = new_labels(tmp_path / f"labels-{overlap}.npy", (203, 150))
        segment_tiles(lambda image: network(image.double()), recording, labels, tile=96, overlap=overlap)
        labels.flush()
        differing[overlap] = (np.load(tmp_path / f"labels-{overlap}.npy") != whole).mean()
    assert len(np.unique(whole)) > 2
    assert differing[32] == 0, "the overlap covers the receptive radius, so that no seam can be seen"
    assert differing[0] > 0, "without overlap there must be seams, or this shows nothing"
    assert recording.largest <= 96 * 96, "no more than a tile may be in memory"


def test_tiles_refuse_sizes_that_would_shift_the_networks_grid():
    labels = np.zeros((64, 64), np.uint8)
    for tile, overlap in ((64, 32), (100, 0), (96, 10)):
        with pytest.raises(ValueError, match="multiples of 32"):
            segment_tiles(UNet(2), np.zeros((64, 64, 3), np.uint8), labels, tile, overlap)
    with pytest.raises(ValueError, match="shape"):
        segment_tiles(UNet(2), np.zeros((64, 64), np.uint8), labels, 64, 0)


@pytest.mark.parametrize("normalization", ["batch", "group"])
def test_the_unet_takes_any_size(normalization: str):
    network = UNet(4, width=8, levels=4, normalization=normalization).eval()
    with torch.no_grad():
        assert network(torch.rand(1, 3, 37, 50)).shape == (1, 4, 37, 50)


def test_a_torchvision_network_starts_from_a_file_but_for_its_head(tmp_path: Path):
    torch.save(TorchvisionSegmenter(5, "fcn_resnet50").network.state_dict(), tmp_path / "weights.pt")
    network = TorchvisionSegmenter(3, "fcn_resnet50", weights=str(tmp_path / "weights.pt")).network
    saved = torch.load(tmp_path / "weights.pt", weights_only=True)
    own = network.state_dict()
    assert torch.equal(own["backbone.conv1.weight"], saved["backbone.conv1.weight"])
    assert own["classifier.4.weight"].shape[0] == 3
    assert not any("aux" in name for name, _ in network.named_parameters()), "it would never learn"


def test_the_demo_is_the_same_each_time_and_no_scan_is_in_two_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    scans: dict[int, set[bytes]] = {}
    original = data.compose

    def compose(pairs, generator):
        scans.setdefault(id(generator), set()).update(ink.tobytes() for ink, _ in pairs)
        generators.append(generator)
        return original(pairs, generator)

    generators: list = []  # kept, so that no two have one id
    monkeypatch.setattr(data, "compose", compose)
    states = np.random.get_state()[1].copy(), torch.get_rng_state()
    data.write_scenes(tmp_path / "first")
    assert len(scans) == 3
    train, val, test = scans.values()
    assert not train & val and not train & test and not val & test
    assert len(train | val | test) > 1700
    data.write_scenes(tmp_path / "second")
    paths = sorted(path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*.*"))
    assert len(paths) == 2 * 769 + 1
    assert all((tmp_path / "first" / path).read_bytes() == (tmp_path / "second" / path).read_bytes() for path in paths)
    assert np.array_equal(states[0], np.random.get_state()[1]) and torch.equal(states[1], torch.get_rng_state())


def with_mask(change):
    """Return a damage that changes one mask's labels."""

    def damage(root: Path) -> None:
        path = root / "masks/img_0.png"
        labels = np.array(Image.open(path))
        Image.fromarray(change(labels)).save(path)

    return damage


def only_ignored(root: Path) -> None:
    for path in root.glob("masks/**/*.png"):
        Image.fromarray(np.where(np.array(Image.open(path)) > 0, 255, 0).astype(np.uint8)).save(path)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda root: (root / "classes.txt").unlink(), ["classes.txt does not exist", "label 0"]),
        (lambda root: (root / "classes.txt").write_text("ground\n"), ["classes.txt", "2 to 255", "ground"]),
        (lambda root: (root / "classes.txt").write_text("a\nb\na\n"), ["each once", "a, b, a"]),
        (lambda root: (root / "classes.txt").write_text("a\nb\n"), ["label 2", "classes.txt", "0 to 1 only"]),
        (lambda root: shutil.rmtree(root / "masks"), ["folders images and masks", "masks does not exist"]),
        (lambda root: (root / "masks/img_0.png").unlink(), ["img_0.jpg has no mask"]),
        (lambda root: (root / "images/img_0.jpg").unlink(), ["img_0.png has no image"]),
        (lambda root: shutil.copy(root / "images/img_0.jpg", root / "images/img_0.png"), ["but their suffix"]),
        (with_mask(lambda labels: labels[:-1]), ["one size", "40 x 60", "39 x 60"]),
        (with_mask(lambda labels: labels.astype(np.uint16) + 300), ["img_0.png", "labels from 0 to 255"]),
        (with_mask(lambda labels: np.stack([labels] * 3, 2)), ["img_0.png", "one channel"]),
        (only_ignored, ["0 and 255 only", "ignored"]),
        (lambda root: (root / "masks/img_0.png").write_text("none"), ["img_0.png cannot be read as an image"]),
        (lambda root: (root / "images/img_0.jpg").write_text("none"), ["img_0.jpg cannot be read as an image"]),
    ],
)
@pytest.mark.parametrize("cache", [True, False])
def test_faulty_data_is_named_in_one_sentence_before_training(photos: Path, damage, words: list[str], cache: bool):
    damage(photos)
    with pytest.raises(UserError) as error:
        made = MaskedImageData(root=str(photos), cache=cache)
        _ = made.class_names
        for split in SPLITS:
            made.make_dataset(split)
    sentence = explain(error.value)
    assert "\n" not in sentence and sentence.endswith(".")
    for word in words:
        assert word in sentence


def test_more_mistakes(photos: Path, capsys):
    with pytest.raises(UserError, match=r"data.predict_root .* holds none"):
        MaskedImageData(predict_root=str(photos / "nowhere")).predict_dataloader()
    with pytest.raises(SystemExit):
        main(["fit", *PLAIN, "--model.loss=jaccard"])
    assert "jaccard" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
def test_the_demo_reaches_its_mean_iou():
    main(["fit"])
    main(["test"])
    metrics = json.loads((LATEST / "test_metrics.json").read_text())
    assert metrics["test/mean_iou"] >= 0.75
    assert min(value for name, value in metrics.items() if "/iou_" in name) > 0.5


def test_classes_are_counted_as_fast_where_repeatable_kernels_are_asked_for(build):
    cli = build("--data.batch_size=4", "--trainer.deterministic=true")
    cli.model.log = cli.model.log_dict = lambda *arguments, **options: None
    batch = cli.datamodule.sample_batch()
    for step in (cli.model.training_step, cli.model.validation_step):
        with torch.profiler.profile() as profile:
            step(batch, 0)
        assert "aten::bincount" in {event.key for event in profile.key_averages()}
