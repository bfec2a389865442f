"""Run a command: `python -m PACKAGE fit`. The guard matters: DDP starts this file again per device."""

from .cli import main

if __name__ == "__main__":
    main()
