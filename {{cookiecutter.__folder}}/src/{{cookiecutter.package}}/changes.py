"""What a resumed run may change: nothing is recorded as one thing and trained as another.

A value on the list below takes effect when it is changed. Every other one is part of what was trained
so far, or is overwritten by the checkpoint (a learning rate by the optimizer's state): it is refused.
"""

from pathlib import Path
from typing import Any

import torch
import yaml
from lightning.pytorch import Trainer

from .practices.errors import UserError
from .record import read
from .resume import length
from .runs import require_whole

MAY_CHANGE = (
    "trainer.max_epochs",
    "trainer.max_steps",
    "trainer.max_time",
    "trainer.min_epochs",
    "trainer.logger",
    "trainer.log_every_n_steps",
    "trainer.enable_progress_bar",
    "trainer.enable_model_summary",
    "trainer.profiler",
    "checkpoint.every_n_train_steps",
    "export_onnx",
    "monitor.target",
    # The same samples come whatever these are; another data set is told by its fingerprint.
    "data.init_args.num_workers",
    "data.init_args.pin_memory",
    "data.init_args.cache",
    "data.init_args.root",
    "data.init_args.predict_root",
)

Resume = tuple[Path | None, dict[str, Any]]


def check_resume(run: Path, config: dict[str, Any], data: dict[str, Any], trainer: Trainer) -> Resume:
    """Return the checkpoint to go on from (None: from the beginning) and what is to be recorded.

    Args:
        run: The run's folder.
        config: What the resumed run would be trained with.
        data: The fingerprint of the data as it is now.
        trainer: What would train it.

    Raises:
        UserError: The run has finished, or something is not as it was.
    """
    changed = differences(yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8")), config)
    for name, (was, now) in changed.items():
        if not name.startswith(MAY_CHANGE):
            raise UserError(
                f"{name} of {run} is {was!r}, not {now!r}: a resumed run goes on as it began; "
                "leave it out, or start another run with it."
            )
    if (was := read(run).get("data", data)) != data:
        raise UserError(f"{run} was trained on other data ({_short(was)}) than there is now ({_short(data)}).")
    path = run / "checkpoints" / "last.ckpt"
    if not path.is_file():  # killed before the first step
        return None, {"from_step": 0, "changed": changed}
    checkpoint = torch.load(require_whole(path), map_location="cpu", weights_only=True, mmap=True)
    there, here = len(checkpoint["callbacks"]["ExactResume"]["ranks"]), trainer.world_size
    if there != here:
        raise UserError(f"{run} ran on {there} processes, not {here}; set --trainer.devices to match.")
    _check_length(run, length(trainer), checkpoint)
    return path, {"from_step": checkpoint["global_step"], "changed": changed}


def _short(data: dict[str, Any]) -> str:
    return f"{data['samples']}, hash {data['sha256']}"


def _check_length(run: Path, new: tuple[int, int], checkpoint: dict[str, Any]) -> None:
    """Refuse to resume a finished run, a length already passed, and a schedule that cannot be made longer."""
    state = checkpoint["callbacks"]["ExactResume"]
    epochs, longer = state["position"][0], new != state["length"]
    if state["done"] and not longer and read(run).get("status") == "finished":
        raise UserError(f"{run} has finished; give a larger --trainer.max_epochs to go on, or start another with fit.")
    if longer and -1 < new[0] <= epochs:
        raise UserError(f"trainer.max_epochs is {new[0]}, but {run} has already trained {epochs} epochs; give more.")
    if longer and (stored := [one for schedule in checkpoint["lr_schedulers"] for one in _stored_length(schedule)]):
        raise UserError(
            f"the length of {run} cannot change, as its learning-rate schedule stores {' and '.join(stored)}: "
            "use a schedule that is computed from the step, such as warmup_cosine, or start another run."
        )


def _stored_length(schedule: dict[str, Any]) -> list[str]:
    """Return what a scheduler's state holds of the length it was made for."""
    inner = [found for one in schedule.get("_schedulers", []) for found in _stored_length(one)]
    return inner + [f"{name}={schedule[name]}" for name in ("total_steps", "T_max") if name in schedule]


def differences(old: Any, new: Any, name: str = "") -> dict[str, tuple[Any, Any]]:
    """Return the values of nested dicts that differ, by dotted name; one that `old` does not know is left out."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = [differences(old[key], new.get(key), f"{name}.{key}".lstrip(".")) for key in old]
        return {name: pair for one in found for name, pair in one.items()}
    return {} if old == new else {name: (old, new)}
