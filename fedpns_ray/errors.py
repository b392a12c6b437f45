"""What can go wrong that a user should read in one line."""

from __future__ import annotations

from typing import Any


class InputError(ValueError):
    """Bad input: one line that names the field, its value and what is allowed. The command line exits with 2."""


class UserCodeError(InputError):
    """A strategy, model or other part of the user's own failed: one line that names their file and line."""


class LostError(RuntimeError):
    """More processes or machines were lost than a run survives. Its folder stands; the same command resumes."""


class DivergedError(RuntimeError):
    """Training diverged: no finite update or model is left. The command line exits with 3.

    `result` holds everything up to there: the records, and the weights of the last finite model.
    """

    def __init__(self, result: Any) -> None:
        super().__init__(result.diverged)
        self.result = result
