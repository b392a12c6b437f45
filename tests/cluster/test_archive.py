"""What `fedpns study --submit` really ships: intercepted, unpacked, and run where nothing else of ours is installed."""

import io
import json
import shutil
import subprocess
import sys
import sysconfig
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedpns_ray import __version__
from fedpns_ray.study.submission import Submission

ROOT = Path(__file__).parent.parent.parent
CLONE = ("fedpns_ray", "tune", ".gitignore", "LICENSE", "README.md", "pyproject.toml")
STAYS_HERE = (".git/HEAD", ".venv/bin/python", "data/mnist.npz", "runs/s/study.csv", "fedpns_ray/__pycache__/cli.pyc")
SHORT = ("--nodes", "5", "--samples-per-node", "20", "--epochs", "1", "--rounds", "2", "--json")


class Dashboard(BaseHTTPRequestHandler):
    """As much of a cluster's dashboard as a submission needs; keeps what it is sent."""

    def do_GET(self):
        answers = {"/api/version": {"version": "4", "ray_version": "2.60.0", "ray_commit": ""}, "/api/jobs/": []}
        self._answer(answers.get(self.path), 200 if self.path in answers else 404)

    def do_PUT(self):
        self.server.packages.append(self._body())
        self._answer(None)

    def do_POST(self):
        job = json.loads(self._body())
        self.server.jobs.append(job)
        self._answer({"job_id": job["submission_id"], "submission_id": job["submission_id"]})

    def _body(self):
        return self.rfile.read(int(self.headers["Content-Length"]))

    def _answer(self, content, status=200):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def dashboard():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Dashboard)
    server.packages, server.jobs = [], []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def sent(dashboard, tmp_path_factory):
    """A clone with everything that accumulates in one, submitted; the unpacked archive."""
    clone, unpacked = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("unpacked")
    for name in CLONE:
        if (ROOT / name).is_dir():  # without what other tests are compiling at this moment
            shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, clone / name)
    for name in STAYS_HERE:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text("stays here")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(clone)
        submission = Submission(
            f"http://127.0.0.1:{dashboard.server_port}",
            ["study", "tune/fig1.yaml"],
            Path("tune/fig1.yaml"),
            "/shared/s",
        )
        submission.start(lambda text: None)
    (package,) = dashboard.packages
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        archive.extractall(unpacked)
    return unpacked


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """An interpreter that has all dependencies and nothing of ours."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (folder / "packages").mkdir()
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            if "fedpns" not in entry.name:
                (folder / "packages" / entry.name).symlink_to(entry)
    own = subprocess.run(
        [folder / "venv/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    Path(own, "packages.pth").write_text(str(folder / "packages"))
    return folder / "venv" / "bin"


def call(*command, cwd, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_all_of_the_package_is_sent_and_nothing_that_stays_here(sent):
    ours = {name for name in files_of(ROOT / "fedpns_ray") if "__pycache__" not in name}
    assert files_of(sent / "fedpns_ray") == ours
    assert "data/sources.py" in ours and "reporting/published.json" in ours and "reporting/page.css" in ours
    assert not files_of(sent) & set(STAYS_HERE) and "tune/fig1.yaml" in files_of(sent)


def test_the_job_runs_where_only_the_archive_is(sent, bare, dashboard, tmp_path, monkeypatch):
    """As Ray runs it: in the unpacked folder, by a Python that knows of no other fedpns_ray."""
    (job,) = dashboard.jobs
    assert job["entrypoint"] == "python -m fedpns_ray study tune/fig1.yaml --address auto"
    python = str(bare / "python")
    where = call(python, "-c", "import fedpns_ray; print(fedpns_ray.__file__)", cwd=sent, monkeypatch=monkeypatch)
    assert where.strip() == str(sent / "fedpns_ray" / "__init__.py")
    out = tmp_path / "r"
    command = (python, "-m", "fedpns_ray", "run", "--in-process", *SHORT, "--out", str(out))
    summary = json.loads(call(*command, cwd=sent, monkeypatch=monkeypatch))
    assert summary["rounds"] == 2 and summary["versions"]["fedpns-ray"] == __version__
    call(python, "-m", "fedpns_ray", "report", str(out), cwd=sent, monkeypatch=monkeypatch)


def test_it_installs_and_runs_from_a_foreign_folder(sent, bare, tmp_path, monkeypatch):
    pip = (sys.executable, "-m", "pip", "--python", str(bare / "python"), "--disable-pip-version-check", "install")
    call(*pip, "--no-deps", "--no-build-isolation", "--no-index", str(sent), cwd=tmp_path, monkeypatch=monkeypatch)
    summary = json.loads(
        call(str(bare / "fedpns"), "run", "--in-process", *SHORT, "--out", "r", cwd=tmp_path, monkeypatch=monkeypatch)
    )
    assert summary["rounds"] == 2
    call(str(bare / "fedpns"), "report", "r", cwd=tmp_path, monkeypatch=monkeypatch)
    installed = (
        "import fedpns_ray.reporting.published as p, importlib.metadata as m;"
        "print(p.__file__, m.version('fedpns-ray'));"
        "print(*(f for f in m.files('fedpns-ray') if f.parts[0] == 'fedpns_ray' and f.suffix != '.pyc'), sep='\\n')"
    )
    first, *names = call(str(bare / "python"), "-c", installed, cwd=tmp_path, monkeypatch=monkeypatch).splitlines()
    assert first.startswith(str(bare.parent)) and first.endswith(__version__)
    assert set(names) == {f"fedpns_ray/{name}" for name in files_of(ROOT / "fedpns_ray") if "__pycache__" not in name}
