"""Reading images: decoding files beside the memory-mapped cache, and by number of workers.

Claims of the articles: memory mapping gives three times the throughput; eight workers are slower than four. The
images are crops of the two real photographs that scikit-learn ships, as JPEG files.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
from common import medians, rendered
from PIL import Image
from sklearn.datasets import load_sample_images

COUNT, SIZE, ROUNDS = 400, 64, 5


def write_photos(root: Path) -> None:
    """Write COUNT crops of 256 x 256 pixels in two classes."""
    generator = np.random.default_rng(0)
    for index in range(COUNT):
        photo = load_sample_images().images[index % 2]
        top, left = (int(generator.integers(0, edge - 256)) for edge in photo.shape[:2])
        folder = root / ("temple", "flower")[index % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photo[top : top + 256, left : left + 256]).save(folder / f"{index}.jpg", quality=90)


if __name__ == "__main__":
    with rendered(logger="csv") as folder:
        os.chdir(folder)
        sys.path.insert(0, str(folder / "src"))
        from digit_reader.image_classification import ImageFolderData

        write_photos(Path("photos"))

        def rate(cache: bool, workers: int) -> float:
            """Return training samples a second over two epochs after one that warms up."""
            data = ImageFolderData("photos", image_size=SIZE, cache=cache, num_workers=workers, batch_size=32)
            loader = data.loader("train")
            sum(len(batch["label"]) for batch in loader)
            started, seen = time.perf_counter(), 0
            for _ in range(2):
                seen += sum(len(batch["label"]) for batch in loader)
            return seen / (time.perf_counter() - started)

        cases = [(cache, workers) for cache in (False, True) for workers in (0, 1, 2, 4, 8)]
        rates = medians({str(case): lambda c=case: rate(*c) for case in cases}, ROUNDS)
        print(f"{os.cpu_count()} CPUs, {COUNT} photographs of 256 x 256, read as {SIZE} x {SIZE}")
        for cache, workers in cases:
            value = rates[str((cache, workers))]
            ratio = value / rates[str((False, 0))]
            print(f"{'cache' if cache else 'decode':<8}{workers} workers {value:8.0f} samples/s  {ratio:5.2f}")
