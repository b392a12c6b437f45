"""cluster/grafana.json: every metric and label that it names is one that this code, or Ray's, exports."""

import ast
import json
import re

from ray.dashboard.modules.reporter.reporter_agent import METRICS_GAUGES

from tests.cluster.validation import ROOT

DASHBOARD = json.loads((ROOT / "cluster" / "grafana.json").read_text())
BY_PROMETHEUS = {"instance"}


def ours():
    """Name → labels of each gauge that the package makes, as Ray exports it."""
    found = {}
    for path in (ROOT / "fedpns_ray").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "Gauge":
                name, _, labels = (ast.literal_eval(argument) for argument in node.args)
                found[f"ray_{name}"] = set(labels)
    return found


def rays():
    return {f"ray_{gauge.name}": set(gauge.view.columns) | BY_PROMETHEUS for gauge in METRICS_GAUGES.values()}


def queries():
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]


def test_every_metric_and_label_is_exported():
    known = rays() | ours()
    for title, expression, legend in queries():
        (metric,) = set(re.findall(r"ray_\w+", expression))
        assert metric in known, f"{title}: nothing exports {metric}"
        grouped = re.search(r"by \((.*?)\)", expression)[1].split(", ")
        filtered = re.findall(r"(\w+)=~", expression)
        assert {*grouped, *filtered} <= known[metric], f"{title}: {metric} has the labels {known[metric]}"
        assert re.findall(r"{{(\w+)}}", legend) == grouped, f"{title}: one line per {grouped}"


def test_every_gauge_of_ours_is_shown():
    shown = {metric for _, expression, _ in queries() for metric in re.findall(r"ray_fedpns_\w+", expression)}
    assert shown == set(ours()) and len(shown) >= 3


def test_it_stands_alone():
    """No data source of someone else's Grafana, no overlapping panels, a variable for each `$name`."""
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]+)\}?", json.dumps(DASHBOARD))) == variables
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
