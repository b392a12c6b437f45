"""The command line: parses, prints, exits. No logic."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, get_args

from rich.console import Console
from rich.table import Table

from fedpns_ray.errors import InputError, LostError
from fedpns_ray.experiment import DATASETS, Experiment, folder_name, overridden
from fedpns_ray.runtime.layout import Layout
from fedpns_ray.runtime.leaving import leave_when_done
from fedpns_ray.strategies import PARTS, PRESETS, describe_default, find_part, known_parameters, parameters_of
from fedpns_ray.study.seeds import parse_seeds
from fedpns_ray.terminal import report as cli_report
from fedpns_ray.terminal import study as cli_study
from fedpns_ray.yaml_file import read_yaml

Command = Callable[[argparse.Namespace], int]

console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 140)
messages = Console(stderr=True, highlight=False, markup=False)

SECTIONS = {
    "strategy": ("strategy", "selection", "objective", "aggregation"),
    "data": (
        "dataset", "partition", "nodes", "sigma", "rho", "varrho", "labeller", "test_nodes", "concentration",
        "shards_per_node", "samples_per_node", "size_spread",
    ),
    "model and training": (
        "model", "vectorize", "fraction", "rounds", "epochs", "batch_size", "lr", "lr_decay", "lr_floor",
        "evaluate_every", "centralised", "seed",
    ),
    "simulated behaviour of nodes": ("drop_probability", "slow_fraction", "slow_seconds"),
    "device model (simulated time)": (
        "devices", "device_speed", "device_uplink", "device_spread", "device_file", "device_fading",
    ),
}  # fmt: skip

RUN_EXAMPLES = """examples:
  fedpns run                                                     FedPNS on the paper's synthetic data, no download
  fedpns run --strategy fedpns --dataset mnist --sigma 0.2 --rho 1 --out runs/first
  fedpns run --strategy fedavg --selection half --dataset mnist --sigma 0.5 --rounds 50
  fedpns run my.yaml --seed 2 --json                             settings from a file, one changed, summary to stdout
  fedpns run --dataset mnist --nodes-per-actor 1                 the paper's picture: one node, one actor
  fedpns run --dataset mnist --gpus-per-actor 0.25 --address auto
"""
COMPARE_EXAMPLES = """examples:
  fedpns compare --strategies fedpns,fedavg --rounds 100
  fedpns compare --strategies fedpns,fedavg,bn2 --dataset mnist --sigma 0.2 --seeds 1-5 --out runs/fig3
"""
DATA_EXAMPLES = """examples:
  fedpns data fetch mnist cifar10        download into FEDPNS_DATA, verified
  fedpns data verify                     check everything that is there against the official checksums
  fedpns data show --dataset mnist --sigma 0.2 --rho 2 --out population.png
"""
DOCTOR_EXAMPLES = """examples:
  fedpns doctor
  fedpns doctor --address auto --out s3://bucket/study                         on a machine of the cluster
  ray exec cluster/gpu.yaml 'fedpns doctor --address auto'                     from afar
"""


class Parser(argparse.ArgumentParser):
    """Errors in one line; flags in full."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options | {"allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def entry() -> NoReturn:
    """The command itself."""
    ended: list[int] = []
    leave_when_done(lambda: ended[0] if ended else None)
    ended.append(main())
    sys.exit(ended[0])


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        options = build_parser().parse_args(arguments)
        if options.runs_code:  # --model mynets:Net beside the user; commands that only read import nothing from there
            sys.path.insert(0, str(Path.cwd()))
        code: int = options.command(options)
        return code
    except InputError as error:
        print(f"fedpns: {error}", file=sys.stderr)
        return 2
    except LostError as error:
        print(f"fedpns: {' '.join(str(error).split())}; the same command resumes", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 141
    except KeyboardInterrupt:
        return 130


def build_parser() -> Parser:
    parser = Parser(prog="fedpns", description="Federated node selection: which nodes should train?")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(
        name: str, function: Command | None, what: str, examples: str = "", runs_code: bool = False
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name, help=what, description=what, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        sub.set_defaults(command=function, runs_code=runs_code)
        return sub

    run = command("run", run_command, "Run one experiment, or resume one.", RUN_EXAMPLES, runs_code=True)
    _add_settings(run)
    run.add_argument("--out", type=Path, metavar="DIR", help="folder of the run (default: runs/NAME, by its settings)")
    run.add_argument("--json", action="store_true", help="print the summary as JSON, and nothing else")
    run.add_argument(
        "--checkpoint-every", default="10", metavar="K", help="rounds between two checkpoints (%(default)s)"
    )
    _add_layout(run)

    compare = command(
        "compare", compare_command, "Run several strategies and seeds side by side.", COMPARE_EXAMPLES, runs_code=True
    )
    _add_settings(compare, without=("strategy", "seed"))
    compare.add_argument(
        "--strategies",
        default="fedpns,fedavg",
        help="names, separated by commas; the file's strategy does not count (default: %(default)s)",
    )
    compare.add_argument("--seeds", help="such as 1-5 or 1,3,7 (default: the file's seed, or 1)")
    compare.add_argument(
        "--out", metavar="DIR", help="a folder or a URI for all of it (default: runs/NAME, by its settings)"
    )
    compare.add_argument(
        "--address", help="join the Ray cluster there (auto: the one on this machine; default: RAY_ADDRESS)"
    )
    compare.add_argument(
        "--cpu-fallback",
        action="store_true",
        help="train on the CPU where a trial is given a GPU that torch cannot use; otherwise that is refused",
    )
    compare.add_argument("--json", action="store_true", help="print the table as JSON, and nothing else")

    study = command(
        "study",
        study_command,
        "Run a study: a grid or a search, on this machine or a cluster.",
        cli_study.EXAMPLES,
        runs_code=True,
    )
    cli_study.add_arguments(study)

    report = command("report", report_command, "Runs and studies as one page to look at.", cli_report.REPORT_EXAMPLES)
    cli_report.add_report_arguments(report)
    watch = command("watch", watch_command, "Show a running experiment or study, live.", cli_report.WATCH_EXAMPLES)
    cli_report.add_watch_arguments(watch)

    data = command("data", None, "Data sets and populations: fetch, verify, show.", DATA_EXAMPLES)
    actions = data.add_subparsers(required=True, metavar="ACTION")
    for name, function, what in (
        ("fetch", data_fetch_command, "download and verify data sets"),
        ("verify", data_verify_command, "check data sets that are there"),
    ):
        action = actions.add_parser(name, help=what, description=what)
        action.add_argument(
            "names", nargs="*", metavar="DATASET", help=", ".join(n for n in DATASETS if n != "synthetic")
        )
        action.set_defaults(command=function)
    show = actions.add_parser("show", help="draw a population: who holds which labels")
    _add_settings(show)
    show.add_argument("--out", type=Path, metavar="FILE", help="also as a picture (.png, .pdf or .svg)")
    show.set_defaults(command=data_show_command, runs_code=True)

    command("strategies", strategies_command, "List strategies and parts, with parameters and defaults.")
    doctor = command(
        "doctor",
        doctor_command,
        "What this machine or a cluster has, what is missing, and what to do.",
        DOCTOR_EXAMPLES,
    )
    doctor.add_argument(
        "--address", help="examine every machine of the Ray cluster there (auto: the one on this machine)"
    )
    doctor.add_argument("--out", metavar="DIR", help="with --address: whether every machine can write a study there")
    return parser


def _add_settings(parser: argparse.ArgumentParser, without: Sequence[str] = ()) -> None:
    """A flag for every field of Experiment and every parameter of every part."""
    parser.add_argument("config", nargs="?", type=Path, help="a YAML file with settings; flags win over it")
    for section, names in SECTIONS.items():
        group = parser.add_argument_group(section)
        for name in names:
            if name not in without:
                group.add_argument(_flag(name), dest=f"set.{name}", metavar=_metavar(name), help=_help(name))
    group = parser.add_argument_group("parameters of the strategy")
    for name, parts in known_parameters().items():
        what = (parts[0].model_fields[name].description or "").replace("%", "%%")
        default = describe_default(parts[0], name)
        takers = " or ".join(part.name for part in parts)
        group.add_argument(_flag(name), dest=f"set.{name}", metavar="X", help=f"{takers}: {what} Default: {default}.")
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any setting, such as a parameter of your own part",
    )


def _add_layout(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("layout: where it runs; changes nothing but speed")
    group.add_argument("--actors", metavar="N", help="Ray actors that share the work (default: every core or GPU)")
    group.add_argument("--nodes-per-actor", metavar="N", help="nodes with a home; 1: one node, one actor")
    group.add_argument(
        "--gpus-per-actor", metavar="X", help="fraction of a GPU, or several GPUs (default: up to 4 share one)"
    )
    group.add_argument(
        "--cpus-per-actor", metavar="X", help="CPUs that Ray reserves for an actor (default: 1, or its share)"
    )
    group.add_argument(
        "--cpu-fallback",
        action="store_true",
        help="train on the CPU where an actor is given a GPU that torch cannot use; otherwise that is refused",
    )
    group.add_argument("--in-process", action="store_true", help="no Ray: everything in this process")
    group.add_argument(
        "--address", help="join the Ray cluster there (auto: the one on this machine; default: RAY_ADDRESS)"
    )
    group.add_argument(
        "--profile", action="store_true", help="print where the time went; save Ray's timeline in the folder"
    )


def _layout(options: argparse.Namespace) -> Layout | None:
    """What the flags ask for; None is in-process."""
    asked: dict[str, Any] = {}
    for name, kind in (("actors", int), ("nodes_per_actor", int), ("gpus_per_actor", float), ("cpus_per_actor", float)):
        text = getattr(options, name)
        if text is None:
            continue
        try:
            asked[name] = kind(text)
        except ValueError:
            raise InputError(
                f"{name}: {text!r} is not allowed; it must be a {'whole ' * (kind is int)}number"
            ) from None
    if not options.in_process:
        return Layout(**asked, cpu_fallback=options.cpu_fallback)
    for name in (*asked, *(name for name in ("address", "cpu_fallback") if getattr(options, name))):
        raise InputError(f"{name}: {getattr(options, name)} is not allowed beside --in-process")
    return None


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _metavar(name: str) -> str:
    choices = get_args(Experiment.model_fields[name].annotation)
    return "{" + ",".join(choices) + "}" if choices and isinstance(choices[0], str) else "X"


def _help(name: str) -> str:
    field = Experiment.model_fields[name]
    what = (field.description or "").replace("%", "%%")
    by_dataset = {dataset: own[name] for dataset, own in DATASETS.items() if name in own}
    default = f" Default: {field.default}." if field.default not in ("", None) else ""
    others = "".join(f" For {dataset}: {value}." for dataset, value in by_dataset.items() if value != field.default)
    return f"{what}{default}{others}"


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """The file's settings, overridden by flags."""
    flags = {key.removeprefix("set."): value for key, value in vars(options).items() if key.startswith("set.")}
    given = {key: value for key, value in flags.items() if value is not None}
    given |= cli_study.pairs(options.set, "set")
    return overridden(read_yaml(options.config) if options.config else {}, given)


@contextmanager
def _stop_on_signal() -> Iterator[Any]:
    """The first Ctrl-C or SIGTERM asks for a stop after the round; the second one stops at once."""
    asked: list[int] = []

    def handler(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        messages.print("stopping after this round …")

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, old in before.items():
            signal.signal(number, old)


SCREEN = cli_study.Screen(console, messages, _stop_on_signal)


def _run_one(experiment: Experiment, out: Path, quiet: bool, **where: Any) -> Any:
    """Run an experiment with a progress bar; None if stopped by a signal."""
    from fedpns_ray.api import Interrupted, run
    from fedpns_ray.errors import DivergedError
    from fedpns_ray.terminal.bars import Bars

    with _stop_on_signal() as stop, Bars(messages, quiet) as bars:
        bars.begin(experiment)
        try:
            result = run(experiment, out, bars.advance, stop, say=messages.print, **where)
        except DivergedError as error:
            result = error.result
        except (Interrupted, KeyboardInterrupt):
            bars.close()
            messages.print(f"stopped; the same command resumes from {out}")
            return None
        bars.end()
    return result


def run_command(options: argparse.Namespace) -> int:
    experiment = Experiment(**_settings(options))
    out = options.out or Path("runs") / folder_name(experiment)
    layout, every = _layout(options), options.checkpoint_every
    if not (every.isdigit() and int(every)):
        raise InputError(f"checkpoint_every: {every!r} is not allowed; it must be a whole number above 0")
    timeline = out / "timeline.json" if options.profile and layout else None
    where = {"layout": layout, "address": options.address, "timeline": timeline, "checkpoint_every": int(every)}
    result = _run_one(experiment, out, quiet=options.json, **where)
    if result is None:
        return 130
    code = 3 if result.diverged else 0
    if result.diverged:
        messages.print(f"fedpns: {experiment.label}, seed {experiment.seed}: {result.diverged}", soft_wrap=True)
    if options.json:
        print(json.dumps(result.summary | {"out": str(out)}))
        return code
    s = result.summary
    reached = [f"{float(k):.0%} in {r} rounds" for k, r in s["rounds_to"].items() if r]
    final, loss = _number(s["final_accuracy"], ".2%"), _number(s["last_loss"], ".4f")
    console.print(f"{experiment.label}: final accuracy {final}, loss {loss}")
    console.print(f"reached {', '.join(reached[-3:]) or 'no target accuracy'}")
    if "bytes_up" in s:  # runs of before the ledger have none
        time = f", {s['simulated_seconds']:.4g} simulated s" if "simulated_seconds" in s else ""
        console.print(f"{s['bytes_up'] / 1e6:.4g} MB up, {s['bytes_down'] / 1e6:.4g} MB down{time}")
    if lost := s.get("non_finite_updates"):
        console.print(f"{lost} update{'s were' if lost > 1 else ' was'} not finite and left out")
    console.print(f"weights {s['weights_sha256'][:16]}…, written to {out}", soft_wrap=True)
    if options.profile:
        _print_profile(result)
    return code


def _number(value: float | None, form: str) -> str:
    """`-` for what is no number."""
    return "-" if value is None or value != value else format(value, form)


def _print_profile(result: Any) -> None:
    """Where a round's time went, the median over rounds."""
    import pandas as pd

    phases = pd.DataFrame([record["seconds_by_phase"] for record in result.records]).median()
    grid = Table(title="a round, median over rounds", title_justify="left")
    for column in ("phase", "ms", "share"):
        grid.add_column(column, justify="left" if column == "phase" else "right")
    for phase, seconds in phases.items():
        grid.add_row(str(phase), f"{1e3 * seconds:.2f}", f"{seconds / phases.sum():.1%}")
    console.print(grid)


def compare_command(options: argparse.Namespace) -> int:
    from fedpns_ray.records.storage import Storage
    from fedpns_ray.study.comparison import comparison

    settings = _settings(options)
    seeds = parse_seeds(options.seeds or str(settings.get("seed", 1)))
    strategies = [name.strip() for name in options.strategies.split(",") if name.strip()]
    study = replace(comparison(settings, strategies, seeds), cpu_fallback=options.cpu_fallback)
    storage = Storage(options.out or Path("runs") / study.name)
    storage.check()
    command = shlex.join(["fedpns", "study", f"{storage}/study.yaml", "--out", str(storage)])
    return cli_study.show_study(study, study, storage, options, SCREEN, command=command)


def study_command(options: argparse.Namespace) -> int:
    return cli_study.study_command(options, SCREEN)


def report_command(options: argparse.Namespace) -> int:
    return cli_report.report_command(options, console)


def watch_command(options: argparse.Namespace) -> int:
    return cli_report.watch_command(options, console)


def data_fetch_command(options: argparse.Namespace) -> int:
    from fedpns_ray.data.sources import IMAGES, fetch

    for name in _datasets(options.names or list(IMAGES)):
        console.print(f"{name}: {fetch(name)}", soft_wrap=True)
    return 0


def data_verify_command(options: argparse.Namespace) -> int:
    from fedpns_ray.data.sources import IMAGES, data_root, verify

    names = options.names or [name for name in IMAGES if (data_root() / f"{name}.npz").exists()]
    if not names:
        raise InputError(f"dataset: none in {data_root()}; `fedpns data fetch` brings them")
    for name in _datasets(names):
        verify(name)
        console.print(f"{name}: as published")
    return 0


def _datasets(names: Sequence[str]) -> Sequence[str]:
    known = [name for name in DATASETS if name != "synthetic"]
    for name in names:
        if name not in known:
            raise InputError(f"dataset: {name!r} is unknown here; there are {', '.join(known)}")
    return names


def data_show_command(options: argparse.Namespace) -> int:
    from fedpns_ray.data import build_population
    from fedpns_ray.reporting.population import draw, picture_formats

    if options.out and options.out.suffix not in picture_formats():
        raise InputError(f"out: {options.out} is not allowed; it must end in {', '.join(picture_formats())}")
    experiment = Experiment(**_settings(options))
    population = build_population(experiment)
    grid = Table(title=f"{experiment.dataset}: samples of each label on each node", title_justify="left")
    for column in ("node", "iid", *map(str, range(population.samples.classes)), "D_i", "q_dif"):
        grid.add_column(column, justify="right", no_wrap=True)
    shown = 60
    for node in range(min(population.count, shown)):
        kind = "yes" if population.iid[node] else ""
        counts = (str(count) if count else "·" for count in population.histogram[node])
        grid.add_row(str(node), kind, *counts, str(population.sizes[node]), f"{population.q_dif[node]:.2f}")
    console.print(grid)
    if population.count > shown:
        console.print(f"… and {population.count - shown} more nodes")
    for key, value in population.summary().items():
        console.print(f"{key}: {value}", soft_wrap=True)
    if options.out:
        draw(population, experiment, options.out)
        console.print(f"written to {options.out}", soft_wrap=True)
    return 0


def strategies_command(options: argparse.Namespace) -> int:
    grid = Table(title="strategies (--strategy)", title_justify="left")
    for column in ("name", "what it does", "its parts", "parameters and defaults"):
        grid.add_column(column, no_wrap=column == "name")
    for name, preset in PRESETS.items():
        takers = parameters_of(preset.parts)
        parameters = ", ".join(f"{key} = {takers[key].model_fields[key].default}" for key in takers)
        grid.add_row(name, preset.what, ", ".join(preset.parts.values()), parameters)
    console.print(grid)
    for kind, parts in PARTS.items():
        grid = Table(title=f"{kind} (--{kind})", title_justify="left")
        for column in ("name", "what it does", "parameters and defaults"):
            grid.add_column(column, no_wrap=column == "name")
        for name in parts:
            part = find_part(kind, name)
            parameters = "\n".join(f"{key} = {describe_default(part, key)}" for key in part.model_fields)
            grid.add_row(name, (part.__doc__ or "").strip().splitlines()[0], parameters)
        console.print(grid)
    return 0


def doctor_command(options: argparse.Namespace) -> int:
    from fedpns_ray.doctor.machine import examine

    if options.out and not options.address:
        raise InputError("out: is not allowed without --address")
    if options.address:
        from fedpns_ray.doctor.cluster import examine_cluster

    grid = Table(title="doctor", title_justify="left")
    for column in ("", "what", "found", "what to do"):
        grid.add_column(column)
    findings = examine_cluster(options.address, options.out) if options.address else examine()
    for finding in findings:
        grid.add_row({True: "ok", False: "NO", None: "-"}[finding.ok], *finding[1:])
    console.print(grid)
    return 1 if any(finding.ok is False for finding in findings) else 0


if __name__ == "__main__":
    entry()
