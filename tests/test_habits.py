"""The files around the code say what is true: make's targets, the workflow, the templates, the citation."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
PROJECT = (ROOT / "pyproject.toml").read_text()
PYTHONS = re.findall(r"Python :: (3\.\d+)", PROJECT)
PLAIN = sorted([*(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"])


def test_make_help_lists_every_target():
    asked = ["make", "--no-print-directory", "help"]  # make itself may have started the tests
    listed = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in listed.splitlines()] == TARGETS
    declared = " ".join(re.findall(r"^\.PHONY: ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert sorted(declared.replace("\\", "").split()) == sorted(TARGETS)


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.name)
def test_it_is_yaml_with_content(path):
    assert yaml.safe_load(path.read_text())


def test_the_workflow_runs_ci_on_every_supported_python():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == PYTHONS == ["3.10", "3.11", "3.12", "3.13"]
    assert jobs["test"]["steps"][-1] == {"run": ".ci/run"}
    assert (
        f'requires-python = ">={PYTHONS[0]}"' in PROJECT
        and f"for version in {' '.join(PYTHONS)};" in (ROOT / "Makefile").read_text()
    )


def test_hooks_call_what_is_pinned():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    pinned = (ROOT / "requirements-dev.txt").read_text()
    for hook in repository["hooks"]:
        tool = re.match(r"\.venv/bin/(\w+)", hook["entry"])
        assert tool and f"\n{tool[1]}==" in pinned, hook


def test_the_forms_ask_with_labels():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"):
        form = yaml.safe_load(path.read_text())
        assert form["name"] and form["description"] and all(one["attributes"]["label"] for one in form["body"]), path


def test_links_between_these_pages_lead_somewhere():
    for name in ("CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md", "SECURITY.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text()):
            assert (ROOT / target).exists(), f"{name}: {target}"
