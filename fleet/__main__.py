"""Run the command line as `python -m fleet`."""

import sys

from fleet.cli import main

if __name__ == "__main__":
    sys.exit(main())
