"""`python -m muster verify`: the `muster` program of this installation."""

import os
import sys

from muster import _binary


def main() -> None:
    path = _binary.path()
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
