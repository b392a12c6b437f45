"""The real data sets, read, verified, and refused when damaged or missing."""

import bz2
import gzip
import hashlib
import lzma
import shutil
import subprocess
import sys

import numpy as np
import pytest

from fedpns_ray import InputError
from fedpns_ray.data import sources
from fedpns_ray.data.official.cifar import CIFAR10_BINARY


def test_mnist_is_mnist(mnist):
    assert mnist.train_x.shape == (60000, 1, 28, 28) and mnist.test_x.shape == (10000, 1, 28, 28)
    assert mnist.train_x.dtype == np.uint8 and mnist.train_y.dtype == np.int64
    assert np.bincount(mnist.train_y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert mnist.train_x.mean() / 255 == pytest.approx(0.1307, abs=1e-4)
    assert (mnist.mean, mnist.deviation) == (0.1307, 0.3081)


def test_cifar10_from_its_binary_version(cifar10):
    assert cifar10.train_x.shape == (50000, 3, 32, 32) and cifar10.test_x.shape == (10000, 3, 32, 32)
    assert cifar10.train_x.dtype == np.uint8
    assert np.bincount(cifar10.train_y).tolist() == [5000] * 10 == (np.bincount(cifar10.test_y) * 5).tolist()
    assert cifar10.train_y[:5].tolist() == [6, 9, 9, 4, 1]  # frog, truck, truck, deer, automobile
    assert cifar10.train_x.mean(axis=(0, 2, 3)) / 255 == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)


def test_verify_accepts_the_official_files(mnist_files):
    sources.verify("mnist")


@pytest.fixture
def small_root(tmp_path, mnist_files):
    shutil.copytree(mnist_files, tmp_path / "MNIST" / "raw")
    return tmp_path


def test_fetch_reads_verified_files_without_a_network(small_root, mnist):
    assert sources.fetch("mnist", small_root) == small_root / "mnist.npz"
    assert np.array_equal(sources.load("mnist", small_root).test_x, mnist.test_x)
    assert not list(small_root.glob("*.partial*"))


def test_a_damaged_official_file_is_refused(small_root):
    path = small_root / "MNIST" / "raw" / "t10k-labels-idx1-ubyte.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte.gz is damaged: it cannot be unpacked"):
        sources.fetch("mnist", small_root)
    path.write_bytes(gzip.compress(gzip.decompress(whole)[:-1] + b"\x00"))
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte.gz does not have its official checksum"):
        sources.fetch("mnist", small_root)
    assert not (small_root / "mnist.npz").exists()


def test_a_changed_unpacked_file_is_refused(small_root):
    sources.fetch("mnist", small_root)
    path = small_root / "MNIST" / "raw" / "t10k-labels-idx1-ubyte"
    path.write_bytes(gzip.decompress(path.with_suffix(".gz").read_bytes())[:-1] + b"\x00")
    with pytest.raises(InputError, match="t10k-labels-idx1-ubyte does not have its official checksum; delete it"):
        sources.verify("mnist", small_root)


def test_the_right_bytes_are_accepted_however_they_are_packed(small_root, mnist):
    raw = small_root / "MNIST" / "raw"
    pack = {"": bytes, ".xz": lambda data: lzma.compress(data, preset=0), ".bz2": lambda data: bz2.compress(data, 1)}
    for path in raw.iterdir():
        if path.suffix != ".gz":
            path.unlink()
    for path, ending in zip(sorted(raw.iterdir()), ("", ".xz", ".bz2", "again"), strict=True):
        content = gzip.decompress(path.read_bytes())
        path.unlink()
        path = path if ending == "again" else path.with_suffix(ending)
        path.write_bytes(gzip.compress(content, 1) if ending == "again" else pack[ending](content))
    assert sources.standing("mnist", small_root) == "official files, not prepared yet"
    assert sources.verify("mnist", small_root).startswith("as published")
    sources.fetch("mnist", small_root)
    assert np.array_equal(sources.load("mnist", small_root).train_x, mnist.train_x)
    assert sources.standing("mnist", small_root) == "ready"


def test_partial_data_is_one_line(tmp_path, cifar10):
    (tmp_path / "cifar-10-batches-bin").mkdir()
    with pytest.raises(InputError, match="could not be fetched"):
        sources.load("cifar10", tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin.xz").write_bytes(b"not xz")
    with pytest.raises(InputError, match="data_batch_1.bin.xz is damaged: it cannot be unpacked"):
        sources.load("cifar10", tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin.xz").unlink()
    (tmp_path / "cifar10.npz").write_bytes((sources.data_root() / "cifar10.npz").read_bytes())
    with pytest.raises(InputError, match="cifar10 cannot be verified: its official files in .* cannot be read"):
        sources.verify("cifar10", tmp_path)
    (tmp_path / "mnist.npz").write_bytes(b"")
    with pytest.raises(InputError, match="is damaged"):
        sources.load("mnist", tmp_path)


def test_a_damaged_or_changed_npz_is_refused(small_root):
    prepared = sources.fetch("mnist", small_root)
    samples = sources.load("mnist", small_root)
    changed = samples.test_y.copy()
    changed[0] += 1
    np.savez(prepared, train_x=samples.train_x, train_y=samples.train_y, test_x=samples.test_x, test_y=changed)
    with pytest.raises(InputError, match="differs from the official files"):
        sources.verify("mnist", small_root)
    prepared.write_bytes(prepared.read_bytes()[:1000])
    with pytest.raises(InputError, match="is damaged"):
        sources.load("mnist", small_root)


def test_cifar10_with_a_wrong_byte_is_refused(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name in CIFAR10_BINARY:
        (folder / name).write_bytes(b"\x00" * 100)
    with pytest.raises(InputError, match="data_batch_1.bin does not have its official checksum"):
        sources.load("cifar10", tmp_path)


def test_missing_data_without_a_network_is_one_line(tmp_path):
    """A real download into the void: the resolver of the child process knows no host."""
    code = (
        "import socket\n"
        "def none(*a, **k): raise socket.gaierror(-2, 'Name or service not known')\n"
        "socket.getaddrinfo = none\n"
        "from fedpns_ray.terminal.command_line import main\n"
        "raise SystemExit(main(['run', '--dataset', 'fashion-mnist', '--out', 'out']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"FEDPNS_DATA": str(tmp_path / "data"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("fedpns: dataset: fashion-mnist is not in ") and "fedpns data fetch fashion-mnist" in last
    assert "Traceback" not in done.stderr and not (tmp_path / "out").exists()


def test_torchvision_imports_beside_any_torch():
    """Where the builds do not match, a plain import fails and ours does not; where they match, nothing is declared."""
    plain = subprocess.run([sys.executable, "-c", "import torchvision"], capture_output=True, text=True)
    ours = subprocess.run(
        [
            sys.executable,
            "-c",
            "from fedpns_ray.data import torchvision_import as t\n"
            "d = t.torchvision_datasets(); assert d is t.torchvision_datasets()\n"
            "print(d.MNIST.__name__, t.mended())",
        ],
        capture_output=True,
        text=True,
    )
    assert ours.returncode == 0, ours.stderr
    assert ours.stdout.split() == ["MNIST", str(plain.returncode != 0)]


def test_another_import_error_is_not_hidden(monkeypatch):
    from fedpns_ray.data import torchvision_import

    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)

    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == "torchvision":
                raise RuntimeError("something else")

    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(RuntimeError, match="something else"):
        torchvision_import.torchvision_datasets()


def test_binary_checksums_are_those_of_the_images(cifar10):
    """Whichever version is here: laid out as in the binary one, a byte of label before each image."""
    y, x = np.append(cifar10.train_y, cifar10.test_y), np.concatenate([cifar10.train_x, cifar10.test_x])
    rows = np.column_stack([y.astype(np.uint8), x.reshape(len(x), -1)])
    for k, (name, digest) in enumerate(CIFAR10_BINARY.items()):
        assert hashlib.sha256(rows[10_000 * k : 10_000 * (k + 1)].tobytes()).hexdigest() == digest, name
