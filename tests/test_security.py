"""What SECURITY.md promises of the code: nothing that is read can run, in any reader, now and later."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "fedpns_ray"
MODULES = {"pickle", "cloudpickle", "_pickle", "dill", "joblib", "marshal", "shelve", "ray.cloudpickle"}
"""What they load can run code."""
CALLS = {
    *("eval", "exec", "compile", "__import__", "importlib.import_module", "os.system", "os.popen"),
    *("torch.load", "pandas.read_pickle", "pd.read_pickle"),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.full_load_all"),
}
LOADERS = {"Loader", "UnsafeLoader", "FullLoader", "CLoader"}
EXCEPTIONS = {
    ("study/tune.py", "ray.cloudpickle"): "the error of a trial, from a file that Tune has just written for this study",
    ("core/user_code.py", "importlib.import_module"): "parts of the user's own, for running; see tests/test_reading.py",
    ("__init__.py", "importlib.import_module"): "the public names, each from the module that is named beside it",
}


def dotted(node):
    """`yaml.load` of the expression; empty for anything but names and attributes."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def dangers(tree):
    """(what, line) of everything in a module that could run what it reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from ((name, node.lineno) for name in (node.module, *names) if name in MODULES | CALLS)
        elif isinstance(node, ast.Call):
            called = dotted(node.func)
            if called in CALLS:
                yield called, node.lineno
            if any(k.arg == "shell" and getattr(k.value, "value", True) for k in node.keywords):
                yield "shell=True", node.lineno
            if any(k.arg == "allow_pickle" and getattr(k.value, "value", True) for k in node.keywords):
                yield "allow_pickle", node.lineno
        elif isinstance(node, ast.Attribute) and node.attr in LOADERS and dotted(node.value) == "yaml":
            yield f"yaml.{node.attr}", node.lineno


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_in_the_package_runs_what_it_reads(path):
    here = str(path.relative_to(PACKAGE))
    found = [(what, line) for what, line in dangers(ast.parse(path.read_text())) if (here, what) not in EXCEPTIONS]
    assert not found, f"{here}: {found}; see SECURITY.md"


def test_every_exception_is_needed():
    for here, what in EXCEPTIONS:
        assert what in [found for found, _ in dangers(ast.parse((PACKAGE / here).read_text()))]


@pytest.mark.parametrize(
    "code",
    ["import pickle", "from pickle import loads", "import ray.cloudpickle", "from ray import cloudpickle",
     "import dill", "eval(text)", "exec(text)", "yaml.load(text, Loader=x)", "yaml.unsafe_load(text)",
     "from yaml import full_load", "yaml.compose(text, yaml.FullLoader)", "torch.load(path)",
     "np.load(path, allow_pickle=True)", "np.load(path, allow_pickle=flag)", "pd.read_pickle(path)", "os.system(words)",
     "subprocess.run(words, shell=True)", "importlib.import_module(name)", "import shelve", "import marshal",
     "__import__(name)"],
)  # fmt: skip
def test_each_of_them_would_be_found(code):
    """Else the test above could not fail."""
    assert list(dangers(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["np.load(path)", "yaml.safe_load(text)", "np.load(p, allow_pickle=False)", "model.eval()", "re.compile(x)"]
)
def test_what_is_safe_is_not(code):
    assert not list(dangers(ast.parse(code)))


def test_the_rules_of_ruff_are_on():
    text = (ROOT / "pyproject.toml").read_text()
    assert '"S"' in re.search(r"select = \[(.*?)\]", text)[1]
    assert (ROOT / "SECURITY.md").exists()
