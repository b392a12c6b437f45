"""A bucket on this machine, and a doorway to it that can be shut for a while."""

import contextlib
import socket
import subprocess
import sys
import threading
import time

import psutil

from tests.heads import free_port


@contextlib.contextmanager
def bucket_server():
    """The port of a server that speaks S3 and has one empty bucket, `studies`."""
    import boto3

    server, port = _start_server()
    try:
        deadline = time.monotonic() + 120
        while not _listens(server, port):
            assert time.monotonic() < deadline
            if server.poll() is not None:  # somebody else has taken the port since it was found free
                server, port = _start_server()
            time.sleep(0.1)
        keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **keys).create_bucket(Bucket="studies")
        yield port
    finally:
        server.terminate()
        server.wait()


def _start_server():
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return server, port


def _listens(server, port):
    """Whether this very process listens there."""
    with contextlib.suppress(psutil.Error):
        there = psutil.Process(server.pid).net_connections("tcp")
        return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in there)
    return False


def bucket_uri(port):
    """With a %s for the folder."""
    return f"s3://k:s@studies/%s?scheme=http&endpoint_override=127.0.0.1%%3A{port}&region=us-east-1"


class Doorway:
    """A port that leads to another one while it is open; shut, it refuses connections and has cut those there were."""

    def __init__(self, leads_to):
        self._leads_to = leads_to
        self._held = socket.socket()  # bound and never listening: while the doorway is shut, nobody else gets the port
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port = self._held.getsockname()[1]
        self._lock, self._through = threading.Lock(), set()
        self.open()

    def open(self):
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._welcome, args=(self._listener,), daemon=True).start()

    def shut(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for end in self._through:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _welcome(self, listener):
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self._leads_to))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one, other):
        with self._lock:
            self._through.add(one)
        with contextlib.suppress(OSError):
            while content := one.recv(1 << 16):
                other.sendall(content)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)
        with self._lock:
            self._through.discard(one)
