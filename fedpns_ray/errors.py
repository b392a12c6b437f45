"""The one error that is the user's to mend."""


class InputError(ValueError):
    """Bad input: one line that names the field, its value and what is allowed. The command line exits with 2."""
