"""What a fuzzer tries: values, flags, YAML, damaged files. Nothing here is valid and slow."""

import json
import os
import socket

import yaml
from hypothesis import strategies as st

from fedpns_ray.experiment import Experiment
from fedpns_ray.records.claims import this_machine
from fedpns_ray.registry import PRESETS, known_parameters

TINY = {"nodes": 4, "fraction": 0.5, "rounds": 1, "epochs": 1, "samples_per_node": 20, "batch_size": 10}
HOSTILE = [
    "0", "-1", "1", "2", "0.5", "1e308", "-1e308", "1e-308", "nan", "inf", "", " ", "abc", "true", "None", "[]", "{}",
    "9" * 25, "9" * 5000, "0x10", "1_0", "١", "²", "é", "\u202e", "\udcff", "a" * 300, "../..", "/dev/null",
    "a:b", ":", "os:path",
    "json:loads", "nothing.at.all:x", "1:2:3", "%s", "{0}", "<b>", "\n", "a\nb",
    "s3://k:verysecret@b/x", "--nodes", "-",
]  # fmt: skip
NAMES = [name for name in Experiment.model_fields if name != "parameters"] + list(known_parameters())
MILD = ("sigma", "varrho", "lr", "lr_decay", "seed", "drop_probability", "centralised", "size_spread")
CHOICES = [*PRESETS, "mnist", "cifar10", "synthetic", "natural", "dirichlet", "shards", "iid", "sigma-rho",
           "log-normal", "file", "mlr", "cnn-m", "cnn-c", "rayleigh", "none", "own", "shared", "all",
           "on", "off", "auto"]  # fmt: skip
values = st.sampled_from(HOSTILE) | st.sampled_from(CHOICES) | st.text(max_size=8).filter(lambda t: "\0" not in t)
numbers = st.one_of(st.integers(-2, 3), st.floats(), st.sampled_from([10**30, -(10**30), 2**63, 1e308, 1e-308]))


# --- flags -----------------------------------------------------------------------------------------------------------

DEFAULTS = {name: str(field.default) for name, field in Experiment.model_fields.items() if name not in TINY}
setting = st.tuples(st.sampled_from(NAMES), values) | st.sampled_from([pair for pair in DEFAULTS.items() if pair[1]])
setting |= st.tuples(st.just("strategy"), st.sampled_from(list(PRESETS)))
setting = setting.map(lambda pair: ("--" + pair[0].replace("_", "-"), pair[1]))
other = st.sampled_from(
    [
        ("--actors", "2"), ("--gpus-per-actor", "x"), ("--checkpoint-every", "0"), ("--checkpoint-every", "1e9"),
        ("--set", "a"), ("--set", "=3"), ("--set", "nodes=x"), ("--json",), ("--profile",),
        ("--cpu-fallback",), ("--datset", "x"), ("--checkpoint-every", "²"), ("--checkpoint-every", "9" * 5000),
        ("--time-limit", "²h"), ("--time-limit", "1e999"), ("--patience", "nan"), ("--node-states", "x"),
        ("--address", "auto"), ("extra",), ("--out", "/dev/null"), ("--out", "a" * 300), ("--out", "s3://k:verysecret@b/x"),
    ]
)  # fmt: skip
flags = st.lists(setting | other, min_size=1, max_size=3).map(lambda found: [word for words in found for word in words])

PLACES = ["scratch/fine", "scratch", "scratch/none", "scratch/fine/config.yaml", "/dev/null", "s3://k:verysecret@b/x"]
ADDRESSES = [
    "http://127.0.0.1:1",
    "127.0.0.1:1",
    "http://k:verysecret@127.0.0.1:1",
    "ray://127.0.0.1:1",
    "file:///etc/passwd",
]
place, wild = st.sampled_from(PLACES) | values, values.filter(lambda text: text != "-")
later_commands = st.one_of(
    st.tuples(place, place).map(lambda two: ["same", *two]),
    st.tuples(place, st.sampled_from(["--sample", "--seed"]), wild).map(lambda v: ["verify", "--in-process", *v]),
    st.tuples(st.sampled_from(["list", "logs", "stop"]) | wild, st.sampled_from(ADDRESSES)).map(
        lambda two: ["jobs", two[0], "--address", two[1]]
    ),
    st.tuples(st.sampled_from(["list", "logs", "stop"]), wild).map(lambda two: ["jobs", *two]),
)


# --- YAML ------------------------------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | numbers | values.filter(lambda text: "\udcff" not in text)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*NAMES, "strategy", "1"]) | st.integers(0, 3), inner, max_size=3)
    ),
    max_leaves=6,
)
configurations = st.dictionaries(st.sampled_from([*NAMES, "parameters"]), trees, max_size=3) | st.fixed_dictionaries(
    {}, optional={name: st.just(field.default) for name, field in Experiment.model_fields.items() if name in MILD}
)
STUDY_KEYS = ["base", "axes", "seeds", "grids", "title", "baseline", "targets", "plot", "layout", "search",
              "cpus_per_trial", "gpus_per_trial", "cpu_fallback"]  # fmt: skip
grids = st.fixed_dictionaries(
    {},
    optional={
        "base": configurations,
        "axes": st.dictionaries(st.sampled_from(NAMES), st.lists(scalars, max_size=3), max_size=3),
        "seeds": st.sampled_from(["1-2", "1-99999999999", "x", [1], 3, None]),
    },
)
studies = st.dictionaries(st.sampled_from(STUDY_KEYS), trees, max_size=4) | st.fixed_dictionaries(
    {}, optional={"grids": st.lists(grids, max_size=2), "base": configurations}
)
SNIPPETS = ["&a ", "*a", "<<: *a\n", "!!float ", "!!python/name:os.system ", "[", "{", "- ", ": ", "\t", "\n",
            "2020-13-45", "? ", "|\n", "'", '"', "%", "@", "\0", "\ufeff", "---\n", "0o9",
            "1:59:59", "=", "~"]  # fmt: skip


@st.composite
def texts(draw, contents):
    """YAML of some content, and now and then with something put into it that breaks it."""
    text = yaml.safe_dump(draw(contents), sort_keys=False, allow_unicode=True)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(SNIPPETS)) + text[at:]
    content = text.encode(errors="replace")
    return content if draw(st.integers(0, 9)) else content + b"\xff\xfe"


# --- files -----------------------------------------------------------------------------------------------------------

JUNK = [b"", b"5\n", b"[]\n", b"null\n", b"{}\n", b'"x"\n', b"\xff\xfe\x00", b"[" * 5000, b'{"rounds": 2}',
        b"{" * 9, b"PK\x03\x04" + b"x" * 99,
        b'{"round": 1}\n', b'{"rounds": 2, "nodes": [], "versions": 3}', b'{"round": 1, "seconds": "x"}\n']  # fmt: skip


def damage(path, how, at, junk):
    """Do something to a file; `at` is a fraction of its length."""
    content = path.read_bytes() if path.is_file() else b""
    position = int(at * len(content))
    if how == "flip" and content:
        position = min(position, len(content) - 1)
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x11]) + content[position + 1 :])
        return
    if how in CHANGES:
        path.unlink(missing_ok=True)
        path.write_bytes(CHANGES[how](content, position, junk))
        return
    path.unlink(missing_ok=True)
    if how == "fifo":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "loop":
        path.symlink_to(path.name)
    elif how == "dangling":
        path.symlink_to("nowhere")
    elif how == "device":
        path.symlink_to("/dev/zero")
    elif how == "socket":
        with socket.socket(socket.AF_UNIX) as s:
            os.chdir(path.parent)
            s.bind(path.name)


def _swapped(content, position, junk):
    lines = content.splitlines(keepends=True)
    return b"".join([*lines[1:], *lines[:1]])


def _keyless(content, position, junk):
    """A JSON object without one of its keys."""
    lines = content.splitlines(keepends=True)
    try:
        found = json.loads(lines[0] if len(lines) < 8 else content)
        del found[sorted(found)[position % len(found)]]
    except (ValueError, TypeError, IndexError, ZeroDivisionError, RecursionError):
        return junk
    return json.dumps(found).encode() + b"\n" + b"".join(lines[1:] if len(lines) < 8 else [])


CHANGES = {
    "cut": lambda content, position, junk: content[:position],
    "drop": lambda content, position, junk: content[position:],
    "junk": lambda content, position, junk: junk,
    "insert": lambda content, position, junk: content[:position] + junk + content[position:],
    "swap": _swapped,
    "keyless": _keyless,
}
deeds = st.tuples(
    st.sampled_from([*CHANGES, "flip", "fifo", "folder", "loop", "dangling", "device", "socket", "gone"]),
    st.floats(0, 1),
    st.sampled_from(JUNK),
)

claim = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text(max_size=3) | scalars,
        "who": st.text(max_size=9),
        "since": st.just("2026-01-01") | scalars,
        "machine": st.sampled_from([this_machine(), "elsewhere", ""]),
        "process": st.sampled_from([1, os.getpid(), 0, -1, 2**31, 2**63, 10**30]) | scalars,
        "started": numbers,
        "ended": st.booleans(),
    },
)
whole_claim = claim.map(
    lambda found: {"id": "a", "who": "b", "since": "c", "process": 1, "started": 0.0, "machine": "d"} | found
)
claims = (whole_claim | claim).map(lambda found: json.dumps(found).encode()) | deeds
