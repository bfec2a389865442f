"""Import torch and Lightning once, then run one test after another, each in a fork that ends with it.

Reads one job a line: {"folder", "log", "tests", "seconds"}; answers with {"reports", "timeout"}. The package
under test is imported by no one before the fork, so every fork sees its own copy of it.
"""

import contextlib
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

SHARED = [
    "torch",
    "torch._dynamo",
    "torch.export",
    "torch.onnx",
    "torch.utils.data",
    "torch.utils.tensorboard",
    "lightning.pytorch",
    "lightning.pytorch.cli",
    "lightning.pytorch.callbacks",
    "lightning.pytorch.loggers",
    "lightning.pytorch.profilers",
    "torchmetrics",
    "torchmetrics.classification",
    "torchvision",
    "torchvision.transforms.v2",
    "torchvision.models",
    "torchvision.datasets",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "jsonargparse",
    "sklearn.datasets",
    "PIL.Image",
    "yaml",
    "numpy",
    "pytest",
    "rich",
]


class Recorder:
    """Remember how each phase of each test ended, and by which exception."""

    def __init__(self) -> None:
        self.reports: list[dict[str, str]] = []
        self.raised: dict[tuple[str, str], tuple[str, str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        if call.excinfo is not None:
            self.raised[item.nodeid, call.when] = (call.excinfo.typename, str(call.excinfo.value))
        return (yield)

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            self.keep(report, "collect", report.longreprtext)

    def pytest_runtest_logreport(self, report) -> None:
        if report.when == "call" or not report.passed:
            self.keep(report, report.when)

    def keep(self, report, when: str, error: str = "") -> None:
        kind, text = self.raised.get((report.nodeid, when), ("", error))
        record = {"test": report.nodeid, "when": when, "outcome": report.outcome, "raised": kind, "text": text[-4000:]}
        self.reports.append(record)


def run_tests(job: dict) -> None:
    """Run the job's tests in this process and write how they ended; does not return."""
    code = 1
    try:
        os.setsid()  # so that whatever the test starts can be ended with it
        log = os.open(job["log"], os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(job["folder"])
        recorder = Recorder()
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={job['log']}.tmp", "--rootdir=."]
        code = int(pytest.main([*options, *job["tests"]], plugins=[recorder]))
        Path(job["log"]).with_suffix(".json").write_text(json.dumps({"exit": code, "reports": recorder.reports}))
    finally:
        sys.stdout.flush()
        os._exit(0)


def serve(job: dict) -> dict:
    """Return how the job's tests ended."""
    result = Path(job["log"]).with_suffix(".json")
    child = os.fork()
    if child == 0:
        run_tests(job)
    end = time.monotonic() + job["seconds"]
    while time.monotonic() < end and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if not result.exists():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
        return {"reports": [], "exit": -1}
    return json.loads(result.read_text())


def main() -> None:
    """Answer jobs until there are no more."""
    sys.dont_write_bytecode = True  # of an edited file of equal size and second, an old .pyc would be taken
    for name in SHARED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
