"""`python -m turntake` is the command line."""

import sys

from turntake.operate.cli import main

if __name__ == "__main__":
    sys.exit(main())
