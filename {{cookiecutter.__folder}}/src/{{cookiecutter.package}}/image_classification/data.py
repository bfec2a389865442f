"""Images in a folder per class.

Two layouts are read, so that one's own data is a change of `data.root` alone:

    root/{train,val,test}/<class>/*.png     splits as you made them
    root/<class>/*.png                      split here, by a hash of each file's name

A val or test folder that is missing is taken out of train by the same hash. Class names come from
the folders and reach the module by themselves. Point data.root in configs/default.yaml at your own
folder; nothing here needs to change for it.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets.folder import is_image_file
from torchvision.transforms import v2

from ..practices.errors import UserError
from ..practices.loaders import BaseDataModule, MapDataset, Split
from ..reading.images import CachedImageReader, ImageReader
from ..reading.splits import SPLITS, carve, split_hash, split_of, written_whole

DEMO = Path("data/digits")
CACHE = Path("data/.cache")


def write_digits(root: Path) -> None:
    """Write scikit-learn's 1,797 scans of handwritten digits (8 x 8, 10 classes) as PNG files.

    Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
    Repository, 1998, doi:10.24432/C50P49, licence CC BY 4.0; the part shipped with scikit-learn (BSD-3-Clause).
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    with written_whole(root) as temporary:
        for index, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
            name = f"digit-{index:04d}.png"
            folder = temporary / split_of(name) / str(label)
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pixels * (255 / 16)).round().astype(np.uint8)).save(folder / name)


class ImageFolder:
    """Samples of one split: `{"image", "label", "path"}`.

    `image` is float32 of shape (3, size, size) in 0 to 1 (the module normalises it, so that an exported
    model does too), `label` an int64 scalar, `path` a string.
    """

    def __init__(self, reader: ImageReader, labels: Tensor, augment: bool) -> None:
        """Serve the images of `reader` with `labels` (int64, one an image), augmented on request."""
        self.reader, self.labels = reader, labels
        steps: list[torch.nn.Module] = []
        if augment:
            # TODO(you): augmentation: keep only changes that leave a label true; digits must not be mirrored.
            steps = [v2.RandomAffine(degrees=8, translate=(0.08, 0.08), scale=(0.92, 1.08))]
        self.transform = v2.Compose([*steps, v2.ToDtype(torch.float32, scale=True)])

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return sample `index`."""
        image = self.transform(self.reader[index])
        return {"image": image, "label": self.labels[index], "path": str(self.reader.paths[index])}


class ImageFolderData(BaseDataModule):
    """Images of any size and mode in a folder per class, read as RGB squares.

    Args:
        root: Folder with the images, see above. The demo's own is written on first use.
        image_size: Height and width in pixels that images are cropped and resized to.
        augment: Whether training images are changed at random.
        cache: Decode once into a memory-mapped file in data/.cache (3 x image_size² bytes an image).
        predict_root: Folder of images to predict, at any depth; the test split if null.
        fold: Number from 0, and count of folds: that fold of train and val together is val; fit --folds sets it.
        batch_size: Images a step and device.
        num_workers: Processes that load data; null takes the CPUs that are free for it.
        pin_memory: Page-locked memory for faster copies to a GPU; null turns it on where there is one.
        weighted_sampling: Draw training images so that all classes come equally often.
    """

    provides = ("class_names",)

    def __init__(
        self,
        root: str = str(DEMO),
        image_size: int = 32,
        augment: bool = True,
        cache: bool = True,
        predict_root: str | None = None,
        fold: tuple[int, int] | None = None,
        batch_size: int = 64,
        num_workers: int | None = None,
        pin_memory: bool | None = None,
        weighted_sampling: bool = False,
    ) -> None:
        super().__init__(batch_size, num_workers, pin_memory, weighted_sampling)
        self.root, self.image_size = Path(root), image_size
        self.augment, self.cache, self.predict_root, self.fold = augment, cache, predict_root, fold

    def prepare_data(self) -> None:
        """Write the demo's images, once. Your own data only has to lie in `root`."""
        if self.root == DEMO and not self.root.exists():
            write_digits(self.root)

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, in the order of their labels; known before `setup`."""
        self.prepare_data()
        return self._folders(self._base())

    def _base(self) -> Path:
        """Return the folder whose subfolders are the classes."""
        return self.root / "train" if (self.root / "train").is_dir() else self.root

    def _folders(self, base: Path) -> list[str]:
        names = sorted(p.name for p in base.iterdir() if p.is_dir() and p.name[0] != ".") if base.is_dir() else []
        if len(names) < 2:
            found = f"holds {'only ' + names[0] if names else 'none'}" if base.is_dir() else "does not exist"
            raise UserError(f"data.root needs a folder per class, at least two, but {base} {found}.")
        return names

    def files(self, split: Split) -> list[tuple[str, int]]:
        """Return (path, label) of every image of `split`, or with `fold` of its part of train and val."""
        if self.fold is None or split == "test":
            return self._files(split)
        number, count = self.fold
        if not 0 <= number < count:
            raise UserError(f"data.fold must be a number from 0 and a larger count, as in [0, 5], but is {self.fold}.")
        # Dealt out like cards, class by class, in an order that has nothing to do with that of the names.
        both = sorted(self._files("train") + self._files("val"), key=lambda x: (x[1], split_hash(Path(x[0]).name)))
        starts = [next(i for i, one in enumerate(both) if one[1] == label) for label in range(len(self.class_names))]
        return [x for i, x in enumerate(both) if ((i - starts[x[1]]) % count == number) == (split == "val")]

    def _files(self, split: Split) -> list[tuple[str, int]]:
        """Return (path, label) of every image of `split`, ordered by class and name.

        Raises:
            UserError: A class has no image, or a folder is not a class of the training split.
        """
        given = self._base() != self.root
        base = self.root / split if given and (self.root / split).is_dir() else self._base()
        # Only what was not given as a folder is carved out of train, by the hash of the name.
        carved = [s for s in SPLITS[1:] if not (given and (self.root / s).is_dir())]
        filtered = base == self._base() and carved
        classes = self.class_names
        found = []
        for name in self._folders(base) if base != self._base() else classes:
            if name not in classes:
                raise UserError(f"{base / name} is no class of {self._base()}; the classes are {', '.join(classes)}.")
            images = sorted(str(p) for p in (base / name).rglob("*") if is_image_file(p.name))
            if not images:
                raise UserError(f"{base / name} holds no image; add some or remove the folder.")
            if filtered:
                images = [path for path in images if carve(Path(path).name, carved) == split]
            if split == "train" and not images:
                raise UserError(f"class {name} has too few images for a training split; add some to {base / name}.")
            found += [(path, classes.index(name)) for path in images]
        if not found:
            raise UserError(f"the {split} split of {self.root} is empty; add images or a folder {self.root / split}.")
        return found

    def sample_ids(self, split: Split) -> list[str]:
        """Return the path of every image of `split`."""
        return [path for path, _ in self.files(split)]

    def make_dataset(self, split: Split) -> MapDataset:
        """Return the images of `split`, augmented if they are trained on."""
        paths, labels = zip(*self.files(split), strict=True)
        return ImageFolder(self._reader(paths), torch.tensor(labels), augment=self.augment and split == "train")

    def _reader(self, paths: tuple[str, ...]) -> ImageReader:
        if self.cache:
            return CachedImageReader(paths, self.image_size, CACHE)
        reader = ImageReader(paths, self.image_size)
        reader.check()
        return reader

    def predict_dataloader(self) -> DataLoader[dict[str, Any]]:
        """Return the loader over `predict_root`, whose labels are -1, or over the test split."""
        if self.predict_root is None:
            return self.loader("test")
        paths = sorted(str(p) for p in Path(self.predict_root).rglob("*") if is_image_file(p.name))
        if not paths:
            raise UserError(f"data.predict_root must be a folder with images, but {self.predict_root} holds none.")
        reader = ImageReader(paths, self.image_size)
        reader.check()
        return self.loader("test", ImageFolder(reader, torch.full((len(paths),), -1), augment=False))
