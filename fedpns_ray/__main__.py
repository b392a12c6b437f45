"""`python -m fedpns_ray` is the command `fedpns`."""

from fedpns_ray.terminal.command_line import entry

if __name__ == "__main__":
    entry()
