"""`python -m fedpns_ray` is the command `fedpns`."""

import sys
from pathlib import Path

if Path.cwd() != Path(__file__).parents[1] and sys.path[:1] in ([""], [str(Path.cwd())]):
    del sys.path[0]  # `python -m` puts the current directory there; commands that run experiments add it themselves

from fedpns_ray.terminal.command_line import entry

if __name__ == "__main__":
    entry()
