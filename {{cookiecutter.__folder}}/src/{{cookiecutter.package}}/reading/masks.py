"""Masks: images in which a pixel's value is the label of its class, and pictures of them for people."""

import colorsys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps
from torch import Tensor
from torchvision.datasets.folder import is_image_file
from torchvision.utils import draw_segmentation_masks

from ..practices.errors import UserError
from .images import ImageReader, open_image

IGNORED = 255  # the label of pixels that count neither in the loss nor in the metrics


def read_mask(path: Path, size: int) -> Tensor:
    """Return the labels at `path`, cropped and resized as `read_image` does it, but to the nearest pixel.

    Returns:
        uint8 tensor of shape (size, size), a label a pixel; of a palette image the indices.

    Raises:
        UserError: The file cannot be decoded, or has colours instead of labels.
    """
    labels = np.array(open_image(path))
    if labels.ndim != 2 or labels.dtype.kind not in "bui" or labels.max() > 255 or labels.min() < 0:
        raise UserError(f"{path} must have one channel with labels from 0 to 255, as grey or palette PNG; convert it.")
    square = ImageOps.fit(Image.fromarray(labels.astype(np.uint8)), (size, size), Image.Resampling.NEAREST)
    return torch.from_numpy(np.array(square))


def palette() -> NDArray[np.uint8]:
    """Return a colour for each label, uint8 (256, 3): label 0 black, the ignored one white, the others far apart."""
    hues = [(label * 0.618034) % 1 for label in range(256)]  # the golden ratio: no two neighbours are alike
    colours = [colorsys.hsv_to_rgb(hue, 0.55 + 0.45 * (label % 2), 1.0) for label, hue in enumerate(hues)]
    table = (255 * np.array(colours)).round().astype(np.uint8)
    table[0], table[IGNORED] = 0, 255
    return table


def write_mask(path: Path, labels: Tensor, size: tuple[int, int] | None = None) -> None:
    """Write `labels`, (height, width) of 0 to 255, as PNG whose pixels are labels and which shows colours.

    With `size` (height, width) it is enlarged or reduced to that, to the nearest pixel.
    """
    image = Image.fromarray(labels.to(torch.uint8).numpy())
    if size is not None and size != tuple(labels.shape):
        image = image.resize((size[1], size[0]), Image.Resampling.NEAREST)
    image.putpalette(palette().tobytes())  # "L" becomes "P": the values stay
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def overlay(image: Tensor, mask: Tensor, opacity: float = 0.5) -> Tensor:
    """Return `image` with the labels of `mask` in colours laid over it; label 0 and ignored pixels stay as they are.

    Args:
        image: float (3, height, width) in 0 to 1, or uint8 in 0 to 255.
        mask: Labels, integer (height, width), 0 to 255.
        opacity: Of the colours, 0 to 1.

    Returns:
        uint8 tensor of shape (3, height, width).
    """
    pixels = image if image.dtype is torch.uint8 else (image.clamp(0, 1) * 255).round().to(torch.uint8)
    labels = [label for label in np.unique(mask.numpy()).tolist() if label not in (0, IGNORED)]
    if not labels:
        return pixels.clone()
    layers = torch.stack([mask == label for label in labels])
    colours = [tuple(palette()[label].tolist()) for label in labels]
    picture: Tensor = draw_segmentation_masks(pixels, layers, alpha=opacity, colors=colours)
    return picture


def named(folder: Path) -> dict[str, str]:
    """Return the paths of all images in `folder`, at any depth, by their path in it without suffix, in order."""
    found: dict[str, str] = {}
    for path in sorted(p for p in folder.rglob("*") if is_image_file(p.name)):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if name in found:
            raise UserError(f"{found[name]} and {path} differ in nothing but their suffix; rename or remove one.")
        found[name] = str(path)
    return found


class WholeImages:
    """Images to predict, uncropped: `{"image", "path", "name", "size"}`, `size` being the file's height and width."""

    def __init__(self, folder: Path, size: int) -> None:
        """Serve the images in `folder`, their shorter side resized to `size`, the scale that training saw."""
        found, self.size = named(folder), size
        if not found:
            raise UserError(f"data.predict_root must be a folder with images, but {folder} holds none.")
        self.names, self.paths = list(found), list(found.values())

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return sample `index`, its image float32 (3, height, width) in 0 to 1."""
        file = open_image(Path(self.paths[index])).convert("RGB")
        scale = self.size / min(file.size)
        scaled = file.resize((round(file.width * scale), round(file.height * scale)), Image.Resampling.BICUBIC)
        image = torch.from_numpy(np.array(scaled)).permute(2, 0, 1).float() / 255
        size = torch.tensor([file.height, file.width])
        return {"image": image, "size": size, "path": self.paths[index], "name": self.names[index]}


def pair_up(folder: Path) -> list[tuple[str, str, str]]:
    """Return (image, mask, name) of every pair in `folder`/images and `folder`/masks, ordered by name."""
    for kind in ("images", "masks"):
        if not (folder / kind).is_dir():
            raise UserError(f"data.root needs folders images and masks, but {folder / kind} does not exist.")
    images, masks = named(folder / "images"), named(folder / "masks")
    single = {**images, **masks}
    for name in sorted(images.keys() ^ masks.keys()):
        partner = "mask" if name in images else "image"
        raise UserError(f"{single[name]} has no {partner}; add one of that name to {folder / partner}s or remove it.")
    return [(images[name], masks[name], name) for name in images]


def require_labels(masks: ImageReader, num_classes: int, classes: Path) -> None:
    """Refuse masks with labels that no class has, on which a GPU would fail without a word, and masks of 0 and 255."""
    found: set[int] = set()
    for index, path in enumerate(masks.paths):
        labels = set(np.unique(masks[index].numpy()).tolist())
        largest, found = max(labels - {IGNORED}, default=0), found | labels
        if largest >= num_classes:
            limit = f"{classes} names labels 0 to {num_classes - 1} only"
            raise UserError(f"{path} holds label {largest}, but {limit}; add a class, or set such pixels to {IGNORED}.")
    if found == {0, IGNORED}:
        raise UserError(f"{masks.paths[0]} and others hold 0 and {IGNORED} only, which is ignored; write 1 instead.")


def require_sizes(images: Sequence[str], masks: Sequence[str]) -> None:
    """Refuse a mask of another size than its image: resized, it would lie beside what it marks."""
    for pair in zip(images, masks, strict=True):
        height_width = [displayed_size(path) for path in pair]
        if height_width[0] != height_width[1]:
            sizes = " and ".join(f"{height} x {width}" for height, width in height_width)
            raise UserError(f"{pair[0]} and {pair[1]} must be of one size, but are {sizes}; repair or remove them.")


def displayed_size(path: str) -> tuple[int, int]:
    """Return height and width of the image at `path`, as its camera was held, from the file's header alone."""
    try:
        with Image.open(path) as file:
            # Where a PNG has none before its pixels, asking for it would decode them.
            known = file.getexif() if file.format != "PNG" or "exif" in file.info else {}
            turned = known.get(ExifTags.Base.Orientation, 1) >= 5
            return file.size if turned else (file.height, file.width)
    except OSError as error:
        raise UserError(f"{path} cannot be read as an image; repair or remove it.") from error
