"""INT8 by ONNX Runtime's static quantisation: size, accuracy and speed beside float32.

Claim of the articles: a quarter of the size. A ResNet-18 is trained for a few epochs on the demo, exported, and
quantised with calibration on training images.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from common import command, medians, rendered
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quant_pre_process, quantize_static


class TrainingImages(CalibrationDataReader):
    """Feed training batches, so that ranges are those of the data that the model meets."""

    def __init__(self, loader: Any, batches: int = 4) -> None:
        self.batches = iter([{"image": b["image"].numpy()} for _, b in zip(range(batches), loader, strict=False)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next batch, or None at the end."""
        return next(self.batches, None)


def accuracy(session: onnxruntime.InferenceSession, loader: Any) -> float:
    """Return the share of test images whose class is found."""
    hits = [
        (session.run(None, {"image": batch["image"].numpy()})[0].argmax(1) == batch["label"].numpy())
        for batch in loader
    ]
    return float(np.concatenate(hits).mean())


def seconds(session: onnxruntime.InferenceSession, images: np.ndarray) -> float:
    """Return how long one batch takes."""
    started = time.perf_counter()
    session.run(None, {"image": images})
    return time.perf_counter() - started


if __name__ == "__main__":
    with rendered(logger="csv") as folder:
        command(folder, "fit", "--model.network=configs/network/resnet18.yaml", "--trainer.max_epochs=4")
        os.chdir(folder)
        sys.path.insert(0, str(folder / "src"))
        from digit_reader.image_classification import ImageFolderData

        data, run = ImageFolderData(num_workers=0, augment=False), Path("runs/latest")
        quant_pre_process(str(run / "model.onnx"), "prepared.onnx")
        reader = TrainingImages(data.loader("train"))
        quantize_static("prepared.onnx", "int8.onnx", reader, quant_format=QuantFormat.QDQ, per_channel=True)
        files = {"float32": run / "model.onnx", "int8": Path("int8.onnx")}
        sessions = {name: onnxruntime.InferenceSession(path) for name, path in files.items()}
        images = next(iter(data.loader("test")))["image"].numpy()
        timed = {name: lambda s=session: seconds(s, images) for name, session in sessions.items()}
        speed = medians(timed, rounds=15)
        for name, path in files.items():
            score = accuracy(sessions[name], data.loader("test"))
            size = path.stat().st_size / 1e6
            print(f"{name:<8}{size:7.2f} MB  accuracy {score:.4f}  {speed[name] * 1e3:7.1f} ms a batch")
        sizes = [path.stat().st_size for path in files.values()]
        print(f"size ratio {sizes[1] / sizes[0]:.3f}, time ratio {speed['int8'] / speed['float32']:.2f}")
