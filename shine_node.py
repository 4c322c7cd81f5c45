#!/usr/bin/env python3
"""The launcher: ``python3 shine_node.py COMMAND`` is the same program as the installed ``shine-node COMMAND``."""

import sys

# This file has the package's name: without its own entry in the way, the import below finds the folder beside it.
if __name__ == "__main__":
    from shine_node.cli import main

    sys.exit(main())
