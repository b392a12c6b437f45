"""A bucket on this machine, and a doorway to it that can be shut for a while."""

import contextlib
import socket
import subprocess
import sys
import threading
import time

from tests.heads import free_port


@contextlib.contextmanager
def bucket_server():
    """The port of a server that speaks S3 and has one empty bucket, `studies`."""
    import boto3

    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **keys).create_bucket(Bucket="studies")
        yield port
    finally:
        server.terminate()
        server.wait()


def bucket_uri(port):
    """With a %s for the folder."""
    return f"s3://k:s@studies/%s?scheme=http&endpoint_override=127.0.0.1%%3A{port}&region=us-east-1"


class Doorway:
    """A port that leads to another one while it is open; shut, it refuses connections and has cut those there were."""

    def __init__(self, leads_to):
        self._leads_to, self.port = leads_to, free_port()
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
