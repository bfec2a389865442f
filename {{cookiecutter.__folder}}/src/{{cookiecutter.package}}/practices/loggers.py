"""Where metrics go: always to metrics.csv in the run's folder, and to the logger that was chosen."""

import csv
import netrc
import os
import socket
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only


class MetricsCsv(Logger):
    """Write metrics.csv: one row for each time something was logged, one column for each name.

    Lightning's CSVLogger deletes the file that a resumed run should go on with; this one goes on.
    """

    def __init__(self, folder: Path) -> None:
        """Write into `folder`."""
        super().__init__()
        self.file = folder / "metrics.csv"
        self._new: list[dict[str, float]] = []
        self._columns: list[str] = []
        self.rows = 0  # logged so far, on the disk or not

    name = "csv"
    version = ""

    @property
    def save_dir(self) -> str:
        """The run's folder, where Lightning lets other parts write too."""
        return str(self.file.parent)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Leave them to config.yaml, which holds all of them."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Keep one row; it reaches the disk with `save`."""
        self._new.append({"step": step or 0, **metrics})
        self.rows += 1
        if len(self._new) >= 100:
            self.save()

    @rank_zero_only
    def save(self) -> None:
        """Append the new rows, or write all again when a name appeared for the first time."""
        if not self._new:
            return
        rows, self._new = self._new, []
        if not self._columns and self.file.exists():
            self._columns = list(self._read()[0])
        columns = list(dict.fromkeys([*self._columns, "epoch", "step", *sorted(set().union(*rows))]))
        if columns == self._columns:
            with self.file.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, columns).writerows(rows)
            return
        self._write([*(self._read() if self._columns else []), *rows], columns)

    def _write(self, rows: list[dict[str, Any]], columns: list[str]) -> None:
        temporary = self.file.with_suffix(".tmp")
        with temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        temporary.replace(self.file)
        self._columns = columns

    @rank_zero_only
    def cut(self, rows: int) -> None:
        """Keep the first `rows` rows; a resumed run logs what came after its checkpoint once more."""
        kept = self._read()[:rows] if self.file.exists() else []
        self.rows = len(kept)
        if kept:
            self._write(kept, list(kept[0]))
        else:
            self.file.unlink(missing_ok=True)

    def _read(self) -> list[dict[str, Any]]:
        with self.file.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Write what is left."""
        self.save()


def place(logger: Namespace | None, run: Path) -> None:
    """Set where a configured logger writes: into the run's folder, under the run's name."""
    if logger is None or isinstance(logger, bool):
        return
    kind, options = logger.class_path.rsplit(".", 1)[-1], logger.init_args
    if kind == "WandbLogger":
        options.save_dir, options.name = str(run), run.name
        known = options.id and any((run / "wandb").glob(f"*-{options.id}"))
        if not known and not (options.id or "").startswith(run.name):  # a resumed run keeps the W&B run it was given
            swept = "WANDB_SWEEP_ID" in os.environ  # a sweep knows its runs by the id that its agent gave
            options.id = os.environ.get("WANDB_RUN_ID", run.name) if swept else run.name
        options.offline = options.offline or must_be_offline(run)
    elif kind == "TensorBoardLogger":
        options.save_dir, options.name, options.version = str(run), "", "tensorboard"


@contextmanager
def closing_loggers() -> Iterator[None]:
    """End the W&B run of this process in the end, or the next one would be logged into it."""
    try:
        yield
    finally:
        if "wandb" in sys.modules:
            sys.modules["wandb"].finish()


def must_be_offline(run: Path) -> bool:
    """Return whether W&B could only ask, hang or fail here, and say how to upload the run later."""
    if os.environ.get("WANDB_MODE"):
        return False  # already decided
    url = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai"))
    if not _has_key(url.hostname or ""):
        reason = "there is no API key (wandb login)"
    elif not _is_reachable(url.hostname or "", url.port or 443):
        reason = f"{url.hostname} cannot be reached"
    else:
        return False
    rank_zero_info(f"W&B works offline, as {reason}. Upload later: wandb sync {run}/wandb/offline-run-*")
    return True


def _has_key(host: str) -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _is_reachable(host: str, port: int) -> bool:
    if os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"):
        return True  # only the proxy can tell
    try:
        socket.create_connection((host, port), timeout=3).close()
    except OSError:
        return False
    return True
