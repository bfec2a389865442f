"""What the machine offers decides precision, workers, threads and pinned memory; a value that is given wins."""

import os

import torch
from lightning.pytorch.utilities import rank_zero_info


def choose_precision(accelerator: str) -> str:
    """Return the fastest precision that trains safely here, and say which and why.

    bfloat16 keeps float32's range and needs no loss scaling; float16 does, on older GPUs. On a CPU
    autocast seldom pays. (`16-mixed` on a CPU silently becomes bf16-mixed, so it is never chosen.)
    """
    if accelerator == "cpu" or not torch.cuda.is_available():
        precision, why = "32-true", "no CUDA device is used"
    elif torch.cuda.is_bf16_supported(including_emulation=False):
        precision, why = "bf16-mixed", "the GPU computes in bfloat16"
    else:
        precision, why = "16-mixed", "the GPU has no bfloat16"
    rank_zero_info(f"Precision: {precision}, as {why} (--trainer.precision overrides)")
    return precision


def usable_cpus() -> int:
    """Return how many CPUs this process may use; in a container fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_workers() -> int:
    """Return a number of loader workers: one CPU stays with the training process, four do for most data."""
    return min(4, usable_cpus() - 1)


def share_cpus(accelerator: str) -> None:
    """Leave CPUs to the loader's workers when the CPU also trains: threads that share one wait for each other.

    The number follows from the machine, not from data.num_workers, which must not change a result's last bits.
    OMP_NUM_THREADS wins.
    """
    if "OMP_NUM_THREADS" not in os.environ and not uses_gpu(accelerator):
        cpus = usable_cpus()
        torch.set_num_threads(max(1, cpus // 2, cpus - choose_workers()))


def uses_gpu(accelerator: str) -> bool:
    """Return whether a Trainer with this accelerator setting would run on CUDA."""
    return accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
