"""Real hosts on one machine: network, process and mount namespaces, each with its own address, home and ssh server.

There is a laptop, which holds the switch, and the machines of a cluster. No host has our package, only what it is sent.
Nothing on the outer machine changes except names under /run/netns. `close` removes them and every process of a host:
its first process takes all others with it.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
NEEDED = ("ip", "unshare", "nsenter", "ssh", "ssh-keygen", "rsync", "/usr/sbin/sshd")


def lacking() -> str:
    """Why hosts cannot be created here; empty if they can."""
    if os.geteuid() != 0:
        return "hosts are network namespaces, which need root"
    if missing := [tool for tool in NEEDED if not shutil.which(tool)]:
        return f"hosts need {', '.join(missing)}: apt-get install iproute2 openssh-server rsync"
    tried = subprocess.run(["unshare", "--net", "--pid", "--fork", "--mount", "true"], capture_output=True, text=True)
    return f"no namespaces may be made here: {tried.stderr.strip()}" if tried.returncode else ""


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, **options)


ONE_CORE = "export RAY_OVERRIDE_RESOURCES='{\"CPU\": 1}'\n"


class Hosts:
    """`laptop` and the named machines, on one network. `shared` is a folder that all of them see."""

    def __init__(self, folder: Path, *names: str, bashrc: str = ONE_CORE, installed: bool = True):
        """`bashrc`: what a login finds; `installed`: whether cluster/onprem.yaml finds its installation done."""
        self._folder, self._mark = folder, f"fp{os.getpid()}"
        self._bashrc, self._installed = bashrc, installed
        self.shared = folder / "shared"
        self.shared.mkdir(parents=True)
        self.addresses = {name: f"10.77.0.{k}" for k, name in enumerate(("laptop", *names), 1)}
        self._first: dict[str, subprocess.Popen] = {}

    def __enter__(self):
        try:
            self._make_key()
            run("ip", "netns", "add", self._net("laptop"))
            run("ip", "-n", self._net("laptop"), "link", "add", "switch", "type", "bridge")
            self._address("laptop", "switch")
            for name in self.addresses:
                if name != "laptop":
                    self._plug(name)
                self._boot(name)
            for name in self.addresses:
                self._wait_for_ssh(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for name in reversed(self.addresses):  # the laptop, which has the switch, last
            self._end(name)

    def _end(self, name: str):
        if process := self._first.get(name):
            process.send_signal(signal.SIGKILL)
            process.wait()
        subprocess.run(["ip", "netns", "delete", self._net(name)], capture_output=True)

    # --- what a test does -----------------------------------------------------------------------------------------

    def command(self, name: str, *command, folder: Path | str = "/", **environment):
        """A command line that runs on a host as after a login: nothing of our own environment is passed on."""
        clean = {
            "HOME": str(Path.home()),
            "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
            "TERM": "dumb",
            **environment,
        }
        pairs = [f"{key}={value}" for key, value in clean.items()]
        inside = [
            "nsenter",
            "--target",
            str(self._inner(name)),
            "--net",
            "--pid",
            "--mount",
            "--uts",
            f"--wdns={folder}",
        ]
        return [*inside, "env", "-i", *pairs, *(str(part) for part in command)]

    def cut(self, name: str):
        """Pull the plug: the host keeps running but cannot be reached."""
        run("ip", "-n", self._net("laptop"), "link", "set", f"to-{name}", "down")

    def plug_in(self, name: str):
        run("ip", "-n", self._net("laptop"), "link", "set", f"to-{name}", "up")

    def freeze(self, name: str):
        """Stop all processes of a host but its first one; it stays on the network, and says nothing."""
        run(*self.command(name, "kill", "-STOP", "--", "-1"))

    def add(self, name: str):
        """Start one more host."""
        self.addresses[name] = f"10.77.0.{len(self.addresses) + 1}"
        self._plug(name)
        self._boot(name)

    def remove(self, name: str):
        """End a host and all its processes; its address is not given again."""
        self._end(name)

    def processes(self, name: str):
        """The processes of a host, as the host sees them."""
        return run(*self.command(name, "ps", "-e", "-o", "args=")).stdout.splitlines()

    # --- how a host is made ---------------------------------------------------------------------------------------

    def _net(self, name: str):
        return f"{self._mark}-{name}"

    def _make_key(self):
        self._key = self._folder / "key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self._key)

    def _address(self, name: str, device: str):
        net = self._net(name)
        run("ip", "-n", net, "address", "add", f"{self.addresses[name]}/24", "dev", device)
        for link in ("lo", device):
            run("ip", "-n", net, "link", "set", link, "up")

    def _plug(self, name: str):
        net, laptop = self._net(name), self._net("laptop")
        run("ip", "netns", "add", net)
        run("ip", "-n", laptop, "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", net)
        run("ip", "-n", laptop, "link", "set", f"to-{name}", "master", "switch", "up")
        self._address(name, "eth0")
        run("ip", "-n", net, "route", "add", "default", "via", self.addresses["laptop"])  # Ray asks it for our address

    def _boot(self, name: str):
        folder = self._folder / name
        home = folder / "home"
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        (home / ".ssh" / "authorized_keys").write_text(Path(f"{self._key}.pub").read_text())
        shutil.copy(self._key, home / ".ssh" / "id_ed25519")
        (home / ".bashrc").write_text(self._bashrc)
        if self._installed and name != "laptop":  # nothing is to be downloaded
            (home / ".fedpns").mkdir()
            (home / ".fedpns" / "venv").symlink_to(sys.prefix)
            shutil.copy(ROOT / "fedpns_ray" / "requirements.txt", home / ".fedpns")
            (folder / "fedpns.pth").write_text(str(Path.home() / "fedpns"))
        host_key = folder / "host_key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", host_key)
        host_key = shutil.copy(host_key, home / ".ssh" / "host_key")
        (folder / "sshd_config").write_text(
            f"ListenAddress {self.addresses[name]}\nHostKey {Path.home()}/.ssh/host_key\nPidFile none\nUsePAM no\n"
            f"StrictModes no\nPermitRootLogin prohibit-password\n"
            f"AuthorizedKeysFile {Path.home()}/.ssh/authorized_keys\n"
        )
        keep = [sys.prefix, sys.base_prefix, str(ROOT), str(self.shared)]
        alive_with_us = ["setpriv", "--pdeathsig", "KILL"]
        command = [
            *alive_with_us,
            "ip",
            "netns",
            "exec",
            self._net(name),
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount",
            "--uts",
        ]
        with (folder / "log").open("w") as log:
            self._first[name] = subprocess.Popen(
                [*command, "bash", str(HERE / "host.sh"), name, str(folder), sys.prefix, *keep],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={"PATH": os.environ["PATH"], "HOME": str(Path.home())},
            )  # fmt: skip

    def _inner(self, name: str):
        """The host's first process: the child of unshare."""
        outer = self._first[name].pid
        return int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])

    def _wait_for_ssh(self, name: str):
        deadline = time.monotonic() + 90
        target = f"root@{self.addresses[name]}"
        options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes"]
        while True:
            log = (self._folder / name / "log").read_text()
            assert self._first[name].poll() is None, log
            try:
                run(*self.command("laptop", "ssh", *options, target, "true"), timeout=30)
                return
            except (subprocess.SubprocessError, IndexError) as error:
                assert time.monotonic() < deadline, f"{name} has no ssh: {getattr(error, 'stderr', error)}\n{log}"
                time.sleep(0.2)
