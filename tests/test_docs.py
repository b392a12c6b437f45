"""What the README and the documentation promise.

Every block marked `<!-- run -->` is run, in order, in an empty folder with an empty HOME; rounds and seeds are cut,
nothing else. All other commands are at least parsed.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fedpns_ray.terminal.command_line import build_parser
from tests.heads import ray_head

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "docs/quickstart.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/tutorials/*.md"))]
TEXTS = [ROOT / page for page in PAGES] + [*ROOT.glob("docs/*.md"), *ROOT.glob("*.md"), ROOT / "cluster" / "README.md"]
BLOCK = re.compile(r"(?:<!-- (run|file: \S+) -->\n)?```(\w+)\n(.*?)```", re.DOTALL)
FEWER = (
    (r"--rounds \d+", "--rounds 3"),
    (r"--seeds 1-\d", "--seeds 1-2"),
    (r"(?<=\W)rounds(: |=)\d+", r"rounds\g<1>3"),
    (r"seeds: 1-3", "seeds: 1-2"),
)


def blocks(path):
    """Mark, language and text of every fenced block."""
    return BLOCK.findall(path.read_text())


def short(text):
    for pattern, fewer in FEWER:
        text = re.sub(pattern, fewer, text)
    return text


def commands(text):
    """The lines of a shell block, without their comments."""
    return [words for line in text.replace("\\\n", " ").splitlines() if (words := shlex.split(line, comments=True))]


@pytest.fixture(scope="module")
def head():
    secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
    with ray_head({**os.environ, **secret}) as (_, port):
        yield {**secret, "RAY_ADDRESS": f"127.0.0.1:{port}"}


def test_a_cluster_that_wants_a_token_which_is_not_here(head, tmp_path):
    environment = {**os.environ, **head, "HOME": str(tmp_path)}
    del environment["RAY_AUTH_TOKEN"]
    words = [sys.executable, "-m", "fedpns_ray", "run", "--rounds", "2", "--out", "r"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "requires a token, and there is none here; copy the cluster's to ~/.ray/auth_token" in done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_its_commands_run_in_order(page, head, mnist, tmp_path):
    (tmp_path / "home").mkdir()
    environment = {**os.environ, **head, "HOME": str(tmp_path / "home"), "MPLBACKEND": "Agg"}
    ran = 0
    for mark, language, text in blocks(ROOT / page):
        if mark.startswith("file: "):
            (tmp_path / mark.removeprefix("file: ")).write_text(short(text))
        elif mark == "run" and language == "python":
            _run([sys.executable, "-c", short(text)], tmp_path, environment)
            ran += 1
        elif mark == "run":
            for words in commands(short(text)):
                assert words[0] == "fedpns", words
                _run([sys.executable, "-m", "fedpns_ray", *words[1:]], tmp_path, environment)
                ran += 1
    assert ran


def _run(command, folder, environment):
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "Traceback" not in done.stderr, (command, done.stdout, done.stderr)


def test_every_command_of_every_page_is_one():
    """Also those that rent machines: flags and subcommands exist, files and targets are there."""
    parser, targets = build_parser(), re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    checked = 0
    for path in set(TEXTS):
        for _, language, text in blocks(path):
            for words in commands(text) if language == "bash" else ():
                if words[0] == "fedpns" and "…" not in words:
                    parser.parse_args(words[1:])
                elif words[0] == "make":
                    named = [word for word in words[1:] if "=" not in word]
                    assert set(named) <= set(targets), (path, words)
                elif words[:2] in (["ray", "up"], ["ray", "down"], ["ray", "dashboard"]):
                    assert (ROOT / words[2]).exists(), (path, words)
                checked += 1
    assert checked > 60


def test_links_between_pages_lead_somewhere():
    for path in set(TEXTS):
        prose = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)", prose):
            assert "://" in target or (path.parent / target).exists(), (path, target)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 200


def test_the_notebook_runs(tmp_path):
    cells = json.loads((ROOT / "docs" / "quickstart.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    _run([sys.executable, "-c", short(code)], tmp_path, {**os.environ, "MPLBACKEND": "Agg"})


def test_the_site_builds_without_a_warning(tmp_path):
    words = ["sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(tmp_path / "doctrees")]
    _run([sys.executable, "-m", *words, str(ROOT / "docs"), str(tmp_path / "site")], tmp_path, dict(os.environ))
    page = (tmp_path / "site" / "reference" / "command_line.html").read_text()
    assert "fedpns what-if" in page and (tmp_path / "site" / "strategies" / "fedpns.html").exists()
