"""Starts the program `gdn`, which is in this package."""

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.realpath(__file__)), "bin", "gdn")
    # The program replaces this process.
    os.execv(program, ["gdn", *sys.argv[1:]])


if __name__ == "__main__":
    main()
