"""What can go wrong that a user should read in one line."""


class InputError(ValueError):
    """Bad input: one line that names the field, its value and what is allowed. The command line exits with 2."""


class LostError(RuntimeError):
    """More processes or machines were lost than a run survives. Its folder stands; the same command goes on."""
