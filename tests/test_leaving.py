"""A process ends after Python's exit handlers, before native libraries are unloaded."""

import signal
import subprocess
import sys

SCRIPT = """
import atexit, ctypes, resource, sys
from fedpns_ray.runtime.leaving import leave_when_done

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
libc = ctypes.CDLL(None)
libc.on_exit(libc.abort, None)  # a native library whose end is a crash
leave_when_done(lambda: {code})
atexit.register(print, "last words")
sys.exit(3)
"""


def end(code):
    return subprocess.run([sys.executable, "-c", SCRIPT.format(code=code)], capture_output=True, text=True)


def test_it_ends_after_pythons_exit_handlers_and_before_native_ones():
    left = end("3")
    assert (left.returncode, left.stdout, left.stderr) == (3, "last words\n", "")


def test_without_a_code_it_ends_as_usual():
    assert end("None").returncode == -signal.SIGABRT
