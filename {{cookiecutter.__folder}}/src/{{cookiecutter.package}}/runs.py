"""One folder a run, decided once for all ranks: runs/<time>/, with runs/latest pointing at the newest.

Nothing is written elsewhere and nothing old is overwritten, so a run can be looked at, resumed,
exported or thrown away as a whole.
"""

import os
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .practices.errors import UserError

RUNS = Path("runs")
SHARED = "LIGHTNING_RUN_FOLDER"


def new_run() -> Path:
    """Return this run's new folder under runs/, the same one on every rank."""
    if shared := os.environ.get(SHARED):
        return Path(shared)  # Lightning started this process for another rank
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return Path(_from_rank_zero(lambda: str(_create())))
    if int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        # Tasks of one job start at slightly different times, but know the same job.
        job, restart = os.environ["SLURM_JOB_ID"], os.environ.get("SLURM_RESTART_COUNT", "0")
        return _create(f"slurm-{job}-{restart}", alone=False)
    return _create()


def _create(name: str | None = None, alone: bool = True) -> Path:
    """Make and return a folder under runs/; when `alone`, one that did not exist before."""
    name = name or time.strftime("%Y%m%d-%H%M%S")
    for count in range(1, 1000):
        folder = RUNS / (name if count == 1 else f"{name}-{count}")
        try:
            folder.mkdir(parents=True, exist_ok=not alone)
        except FileExistsError:
            continue
        return folder
    raise UserError(f"{RUNS / name} and 998 folders after it exist; remove some of them.")


def _from_rank_zero(choose: Callable[[], str]) -> str:
    """Return what rank 0 chooses, passed on through the key-value store that torchrun keeps."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    key = f"{SHARED}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    if os.environ["RANK"] == "0":
        store.set(key, choose())
    return str(store.get(key), "utf-8")


@contextmanager
def shared_with_children(run: Path) -> Iterator[None]:
    """Hand `run` on to the processes that Lightning starts for other ranks."""
    os.environ[SHARED] = str(run)
    try:
        yield
    finally:
        del os.environ[SHARED]


def point_latest_at(run: Path) -> None:
    """Make runs/latest a link to `run`, replaced in one step so that it always points somewhere."""
    link, temporary = RUNS / "latest", RUNS / f".latest-{os.getpid()}"
    try:
        temporary.symlink_to(run.name, target_is_directory=True)
        temporary.replace(link)
    except OSError:  # a file system without links: the newest is found by its time
        temporary.unlink(missing_ok=True)


def find_run(name: str) -> Path:
    """Return the run folder that `name` gives: a path, or `latest`.

    Raises:
        UserError: There is no such run.
    """
    if name != "latest":
        run = Path(name)
    elif (RUNS / "latest").exists():
        link = RUNS / "latest"  # a copy of runs/ may have made a folder of it
        run = RUNS / link.readlink() if link.is_symlink() else link
    else:  # of names, which anyone may choose, the last says nothing
        newest = max(RUNS.glob("*/config.yaml"), key=lambda path: path.stat().st_mtime, default=None)
        run = newest.parent if newest else RUNS / "latest"
    if not (run / "config.yaml").is_file():
        known = ", ".join(str(path.parent) for path in sorted(RUNS.glob("[!l]*/config.yaml"))[-3:])
        hint = f"the newest are {known}" if known else "there is none yet, start with fit"
        raise UserError(f"{run} is no run; {hint}.")
    return run


def find_checkpoint(run: Path, name: str) -> Path:
    """Return checkpoint `name` (`best` or `last`) of `run`.

    Raises:
        UserError: The run stopped before it wrote one, or the file is damaged.
    """
    path = run / "checkpoints" / f"{name}.ckpt"
    if not path.is_file():
        raise UserError(f"{path} does not exist, as the run stopped before it was written; start another with fit.")
    return require_whole(path)


def require_whole(path: Path) -> Path:
    """Return the path of a checkpoint that was written to its end.

    Raises:
        UserError: It is not what torch.save writes.
    """
    if not zipfile.is_zipfile(path):
        raise UserError(f"{path} is damaged or no checkpoint; copy it anew, or start another run with fit.")
    return path


def unused(path: Path) -> Path:
    """Return `path`, or the first of name-2, name-3 and so on that does not exist."""
    count, candidate = 1, path
    while candidate.exists():
        count += 1
        candidate = path.with_stem(f"{path.stem}-{count}")
    return candidate
