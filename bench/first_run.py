"""From a generated folder to a trained, tested, exported model, imports included: at most 90 s, accuracy 0.97."""

import json

from common import command, rendered

if __name__ == "__main__":
    with rendered() as project:
        fit, test = command(project, "fit"), command(project, "test")
        latest = project / "runs/latest"
        accuracy = json.loads((latest / "test_metrics.json").read_text())["test/accuracy"]
        size = (latest / "model.onnx").stat().st_size
        print(f"fit and export {fit:.0f} s, test {test:.0f} s, together {fit + test:.0f} s")
        print(f"test accuracy {accuracy:.4f}, model.onnx {size / 1e6:.2f} MB")
