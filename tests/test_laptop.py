"""What a laptop does with a cluster (submit, jobs, report, watch, doctor) needs nothing that only Linux has.

No other system is at hand, so one is taken away: in a process of its own, this package's modules, and no others, find
neither the modules nor the attributes that Windows lacks.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RECORDED = Path(__file__).parent / "recorded" / "schema-1"
ELSEWHERE = """
import builtins, json, sys, types

MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty", "posix"}
ATTRIBUTES = {
    "os": '''O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_SYNC WNOHANG chown fchmod fchown fork forkpty getegid geteuid
        getgid getloadavg getpgid getpgrp getsid getuid initgroups killpg lchown memfd_create mkfifo mknod nice openpty
        pidfd_open posix_spawn pread preadv pwrite sched_getaffinity sched_setaffinity sendfile setgid setpgid setsid
        setuid statvfs fstatvfs sync sysconf uname wait3 wait4''',
    "signal": '''ITIMER_REAL SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1
        SIGUSR2 alarm getitimer pause pthread_kill pthread_sigmask setitimer sigwait''',
    "socket": "AF_UNIX SO_REUSEPORT",
    "time": "clock_gettime tzset",
}
plain, seen = builtins.__import__, set()


def poorer(name, words):
    module, whole = types.ModuleType(name), plain(name)
    vars(module).update({key: value for key, value in vars(whole).items() if key not in words.split()})
    return module


poor = {name: poorer(name, words) for name, words in ATTRIBUTES.items()}


def import_(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    if importer.split(".")[0] == "fedpns_ray":
        seen.add(importer)
        if name in MODULES:
            raise ModuleNotFoundError(f"no module {name} here")
        if name in poor:
            return poor[name]
    return plain(name, globals, locals, fromlist, level)


builtins.__import__ = import_
from fedpns_ray.terminal.command_line import main

codes = []
for words in json.loads(sys.argv[1]):
    try:
        codes.append(main(words))
    except SystemExit as end:
        codes.append(end.code)
print(json.dumps({"codes": codes, "seen": sorted(seen)}))
"""


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    """Runs commands one after the other where nothing is that only Linux has; their exit codes and output."""
    home = tmp_path_factory.mktemp("laptop")

    def run(*commands):
        words = [command.split() for command in commands]
        plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        done = subprocess.run(
            [sys.executable, "-c", ELSEWHERE, json.dumps(words)],
            cwd=home, env={**plain, "HOME": str(home)}, capture_output=True, text=True, timeout=400,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        *said, last = done.stdout.splitlines()
        return json.loads(last), "\n".join(said), done.stderr

    return run


def test_a_laptop_of_any_kind_can_ask_submit_and_read(laptop):
    nobody = "http://127.0.0.1:1"
    ended, said, errors = laptop(
        "--help",
        f"report {RECORDED}",
        f"watch {RECORDED} --once",
        "doctor",
        f"jobs list --address {nobody}",
        f"run --submit {nobody} --out /home/ray/r",
        "run --in-process --rounds 1 --out r",
    )
    assert ended["codes"][:4] == [0, 0, 0, 0], errors
    assert "1 runs, " in said and "finished" in said and "GiB memory" in said
    assert ended["codes"][4:] == [2, 2, 2], errors
    assert errors.count("does not accept jobs") == 2 and errors.endswith("--submit sends them to a cluster\n")
    for module in ("study.submission", "study.jobs", "reporting.liveness", "doctor.machine", "records.run_folder"):
        assert f"fedpns_ray.{module}" in ended["seen"], "else it was not tried"
