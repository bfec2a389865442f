"""Images with a mask each: two folders, in which a pair has the same path but for its suffix.

    root/classes.txt                                    a name a line; the first is label 0
    root/{train,val,test}/{images,masks}/*              splits as you made them
    root/{images,masks}/*                               split here, by a hash of each image's file name

A val or test folder that is missing is taken out of train by the same hash. A mask is a grey or palette
PNG whose values are labels; 255 is ignored. Point data.root in configs/default.yaml at your own folder;
nothing here needs to change for it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision import tv_tensors
from torchvision.transforms import v2

from ..practices.errors import UserError
from ..practices.loaders import BaseDataModule, MapDataset, Split
from ..reading.images import CachedImageReader, ImageReader, read_image
from ..reading.masks import IGNORED, WholeImages, pair_up, read_mask, require_labels, require_sizes, write_mask
from ..reading.splits import SPLITS, carve, split_of, written_whole

DEMO = Path("data/scenes")
CACHE = Path("data/.cache")


def write_scenes(root: Path) -> None:
    """Write 770 scenes of 7 real scanned digits each on noise, 64 x 64, and their exact masks of 11 classes.

    A scan is in scenes of one split alone, that of its name. What is random has generators of its own.
    Source of the scans: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
    Repository, 1998, doi:10.24432/C50P49, licence CC BY 4.0; the part shipped with scikit-learn (BSD-3-Clause).
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    with written_whole(root) as folder:
        names = ["background", *(f"digit {label}" for label in range(10))]
        (folder / "classes.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        for number, split in enumerate(SPLITS):
            generator = np.random.default_rng(number)
            scans = [i for i in range(len(digits.images)) if split_of(f"digit-{i:04d}.png") == split]
            (folder / split / "images").mkdir(parents=True)
            for scene in range(3 * len(scans) // 7):
                chosen = generator.choice(scans, 7, replace=False)
                pairs = [(digits.images[i] / 16, int(digits.target[i]) + 1) for i in chosen]
                image, mask = compose(pairs, generator)
                name = f"{split}-{scene:04d}.png"
                Image.fromarray(image).save(folder / split / "images" / name)
                write_mask(folder / split / "masks" / name, torch.from_numpy(mask))


def compose(scans: list[tuple[Any, int]], generator: np.random.Generator) -> tuple[Any, Any]:
    """Return image and mask, uint8 (64, 64): each of `scans`, ink of 0 to 1 and label, in a cell of its own."""
    background = generator.uniform(20, 100)
    image, mask = np.full((64, 64), background), np.zeros((64, 64), np.uint8)
    for (ink, label), cell in zip(scans, generator.permutation(9), strict=False):
        size = int(generator.integers(15, 22))
        large = Image.fromarray(ink.astype(np.float32)).resize((size, size), Image.Resampling.BICUBIC)
        ink = np.asarray(large).clip(0, 1)
        corner = [21 * part + int(generator.integers(0, 22 - size)) for part in divmod(int(cell), 3)]
        window = tuple(slice(start, start + size) for start in corner)
        image[window] += ink * (generator.uniform(180, 250) - background)
        mask[window] = np.where(ink > 0.4, label, 0)
    noisy = image + generator.normal(0, 12, image.shape)
    return noisy.clip(0, 255).round().astype(np.uint8), mask


class MaskedImages:
    """Samples of one split: `{"image", "mask", "path", "name"}`.

    `image` is float32 of shape (3, size, size) in 0 to 1 (the module normalises it, so that an exported model does
    too), `mask` int64 of shape (size, size), `path` a string, `name` the path below the folder, without suffix.
    """

    def __init__(self, images: ImageReader, masks: ImageReader, names: list[str], augment: bool) -> None:
        """Serve the images and masks of two readers, changed at random together on request."""
        self.images, self.masks, self.names = images, masks, np.asarray(names)
        steps: list[torch.nn.Module] = []
        if augment:
            # TODO(you): augmentation: keep only changes that your images can have; digits must not be mirrored.
            # What comes in from outside is no class: it is ignored.
            fill: dict[Any, Any] = {tv_tensors.Image: 0, tv_tensors.Mask: IGNORED}
            steps = [v2.RandomAffine(degrees=8, translate=(0.08, 0.08), scale=(0.9, 1.1), fill=fill)]
        types: dict[Any, Any] = {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}
        self.transform = v2.Compose([*steps, v2.ToDtype(types, scale=True), v2.ToPureTensor()])

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.names)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return sample `index`."""
        # Typed, so that a mask is moved with its image, but to the nearest pixel: labels have no mean.
        pair = tv_tensors.Image(self.images[index]), tv_tensors.Mask(self.masks[index])
        image, mask = self.transform(*pair)
        return {"image": image, "mask": mask, "path": str(self.images.paths[index]), "name": str(self.names[index])}


class MaskedImageData(BaseDataModule):
    """Images of any size and mode, each with a mask, read as squares.

    Args:
        root: Folder with the images and masks, see above. The demo's own is written on first use.
        image_size: Height and width in pixels that images and masks are cropped and resized to.
        augment: Whether training images and their masks are changed at random, together.
        cache: Decode once into memory-mapped files in data/.cache (4 x image_size² bytes a pair).
        predict_root: Folder of images to predict, at any depth and uncropped; the test split if null.
        batch_size: Images a step and device.
        num_workers: Processes that load data; null takes the CPUs that are free for it.
        pin_memory: Page-locked memory for faster copies to a GPU; null turns it on where there is one.
    """

    provides = ("class_names",)

    def __init__(
        self,
        root: str = str(DEMO),
        image_size: int = 64,
        augment: bool = True,
        cache: bool = True,
        predict_root: str | None = None,
        batch_size: int = 16,
        num_workers: int | None = None,
        pin_memory: bool | None = None,
    ) -> None:
        super().__init__(batch_size, num_workers, pin_memory)
        self.root, self.image_size = Path(root), image_size
        self.augment, self.cache, self.predict_root = augment, cache, predict_root

    def prepare_data(self) -> None:
        """Write the demo's images, once. Your own data only has to lie in `root`."""
        if self.root == DEMO and not self.root.exists():
            write_scenes(self.root)

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, in the order of their labels; known before `setup`."""
        self.prepare_data()
        file = self.root / "classes.txt"
        if not file.is_file():
            raise UserError(f"{file} does not exist; write it, a class name a line, the first being label 0.")
        names = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        if not 2 <= len(names) <= IGNORED or len(set(names)) < len(names):
            raise UserError(
                f"{file} must name 2 to {IGNORED} classes, each once, but has {', '.join(names) or 'none'}."
            )
        return names

    def files(self, split: Split) -> list[tuple[str, str, str]]:
        """Return (image, mask, name) of every pair of `split`, ordered by name.

        Raises:
            UserError: There is none, or an image lacks a mask or shares its name with another.
        """
        self.prepare_data()
        base = self.root / "train" if (self.root / "train").is_dir() else self.root
        given = [s for s in SPLITS[1:] if base != self.root and (self.root / s).is_dir()]
        carved = [s for s in SPLITS[1:] if s not in given]
        pairs = pair_up(self.root / split if split in given else base)
        if split not in given:
            pairs = [pair for pair in pairs if carve(Path(pair[0]).name, carved) == split]
        if not pairs:
            raise UserError(f"the {split} split of {self.root} is empty; add images or a folder {self.root / split}.")
        return pairs

    def sample_ids(self, split: Split) -> list[str]:
        """Return the path of every image of `split`."""
        return [image for image, _, _ in self.files(split)]

    def make_dataset(self, split: Split) -> MapDataset:
        """Return the pairs of `split`, augmented if they are trained on, after a look at every mask."""
        images, masks, names = (list(column) for column in zip(*self.files(split), strict=True))
        require_sizes(images, masks)
        readers = self._reader(images, read_image), self._reader(masks, read_mask)
        require_labels(readers[1], len(self.class_names), self.root / "classes.txt")
        return MaskedImages(*readers, names, augment=self.augment and split == "train")

    def _reader(self, paths: list[str], read: Callable[[Path, int], Tensor]) -> ImageReader:
        if self.cache:
            return CachedImageReader(paths, self.image_size, CACHE, read)
        return ImageReader(paths, self.image_size, read)

    def predict_dataloader(self) -> DataLoader[dict[str, Any]]:
        """Return the loader over `predict_root`, one image at a time as sizes differ, or over the test split."""
        if self.predict_root is None:
            return self.loader("test")
        data: Any = WholeImages(Path(self.predict_root), self.image_size)
        return DataLoader(data, batch_size=1, num_workers=self.num_workers)
