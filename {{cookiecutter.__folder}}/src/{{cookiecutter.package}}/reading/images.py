"""Reading images: any format and mode to RGB of one size, and a memory-mapped cache of the result."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from ..practices.errors import UserError


def open_image(path: Path) -> Image.Image:
    """Return the image at `path`, decoded and turned as its camera was held.

    Raises:
        UserError: The file cannot be decoded.
    """
    try:
        with Image.open(path) as file:
            return ImageOps.exif_transpose(file)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise UserError(f"{path} cannot be read as an image; repair or remove it.") from error


def read_image(path: Path, size: int) -> Tensor:
    """Return the image at `path` as RGB of `size` x `size`, centre-cropped to a square first.

    Returns:
        uint8 tensor of shape (3, size, size), 0 to 255.

    Raises:
        UserError: The file cannot be decoded.
    """
    # A filter that takes its area into account: without, fine patterns turn into false ones.
    square = ImageOps.fit(open_image(path).convert("RGB"), (size, size), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(square)).permute(2, 0, 1).contiguous()


class ImageReader:
    """Decode images when they are asked for."""

    def __init__(self, paths: Sequence[str], size: int, read: Callable[[Path, int], Tensor] = read_image) -> None:
        """Keep the paths as one array: a Python list would be copied into every worker, item by item."""
        self.paths, self.size, self.read = np.asarray(paths), size, read

    def check(self) -> None:
        """Read every file's header, which finds what is no image before training starts.

        Raises:
            UserError: A file is not an image.
        """
        for path in self.paths:
            try:
                Image.open(path).close()
            except OSError as error:
                raise UserError(f"{path} cannot be read as an image; repair or remove it.") from error

    def __getitem__(self, index: int) -> Tensor:
        """Return image `index` as `read` gives it: uint8 of shape (3, size, size), or (size, size) for masks."""
        return self.read(Path(self.paths[index]), self.size)


class CachedImageReader(ImageReader):
    """Read decoded images from one memory-mapped file, shared by all workers and ranks.

    The file's name holds a fingerprint of the images (names, sizes, times of change), so a changed
    image gives a new cache and an old one is never read by mistake.
    """

    def __init__(
        self, paths: Sequence[str], size: int, folder: Path, read: Callable[[Path, int], Tensor] = read_image
    ) -> None:
        """Open the cache of `paths` in `folder`, writing it first if there is none."""
        super().__init__(paths, size, read)
        self.file = folder / f"{self._fingerprint()}-{size}.npy"
        if not self.file.exists():
            self._write()
        self._images: NDArray[np.uint8] | None = None

    def _fingerprint(self) -> str:
        digest = hashlib.sha256(self.read.__name__.encode())
        for path in map(Path, self.paths):
            stat = path.stat()
            digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
        return digest.hexdigest()[:16]

    def _write(self) -> None:
        rank_zero_info(f"Decoding {len(self.paths)} images into {self.file}")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        # Under another name until it is whole: two ranks may write at once, and a run may be killed.
        temporary = self.file.with_name(f"{self.file.stem}.{id(self)}.tmp")
        shape = (len(self.paths), *super().__getitem__(0).shape)
        images = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
        try:
            for index in range(len(self.paths)):
                images[index] = super().__getitem__(index).numpy()
            images.flush()
            temporary.replace(self.file)
        finally:
            temporary.unlink(missing_ok=True)

    def __getitem__(self, index: int) -> Tensor:
        """Return image `index`, uint8, as a copy (the map is read-only)."""
        if self._images is None:  # opened in each worker, so that no handle is shared across processes
            self._images = np.load(self.file, mmap_mode="r")
        return torch.from_numpy(np.array(self._images[index]))

    def __getstate__(self) -> dict[str, object]:
        """Leave the open map out: a spawned worker opens its own instead of receiving the data."""
        return {**self.__dict__, "_images": None}
