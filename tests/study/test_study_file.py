"""Study files: what they expand to, and what is refused, with its line."""

from pathlib import Path

import pytest

from fedpns_ray import Experiment, InputError
from fedpns_ray.reporting.published import published
from fedpns_ray.study.seeds import parse_seeds
from fedpns_ray.study.study_file import read_study

TUNE = Path(__file__).parents[2] / "tune"


def study(tmp_path, text, **options):
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return read_study(path, **options)


def experiments(name):
    return [trial.experiment for trial in read_study(TUNE / f"{name}.yaml").trials]


@pytest.mark.parametrize(
    ("name", "trials", "rounds"),
    [
        ("fig1", 2 * 10, {50}),
        ("fig2", 12 * 5, {200}),
        ("fig3", 12 * 10 + 12 * 5, {100, 200}),
        ("fig4", 6 * 3 + 6 * 5, {200}),
        ("fig5", 2 * (5 + 1) * 5, {200}),
        ("fig6", 3 * 5, {200}),
        ("grid", 6 * (9 + 1) * 5, {200}),
        ("scale", 5 * 2 * 3, {200}),
        ("search", 3, {150}),
        ("oort", 5 * 2 * 2 * 5, {100}),
    ],
)
def test_the_shipped_studies(name, trials, rounds):
    found = experiments(name)
    assert len(found) == trials and {e.rounds for e in found} == rounds


def test_the_figures_are_the_papers():
    """Every published curve has its experiment in its figure's study, with the published number of seeds."""
    for figure, curves in (("fig1", 2), ("fig2", 12), ("fig3", 24), ("fig4", 12), ("fig5", 12), ("fig6", 3)):
        quantity = "test_loss" if figure == "fig1" else "test_accuracy"
        settings = {e.but(seed=1).to_yaml(): e for e in experiments(figure)}
        assert len(settings) == curves
        assert all(published(e, quantity) is not None for e in settings.values()), figure
    (half,) = {e.selection for e in experiments("fig1")}
    assert half == "half"
    assert {e.epochs for e in experiments("fig4")} == {5} and {e.epochs for e in experiments("fig2")} == {20}
    bn2 = next(e for e in experiments("fig6") if e.strategy == "bn2")
    assert bn2.parameters["candidates"] == 20 and published(bn2, "gradient_norm_iid").iloc[0] == pytest.approx(0.7532)


def test_grids_share_trials_and_drop_what_a_strategy_does_not_use(tmp_path):
    s = study(
        tmp_path,
        """
base: {nodes: 20, rounds: 5}
seeds: [3, 1]
grids:
  - axes: {strategy: [fedpns, fedavg], alpha: [1, 2]}
  - axes: {strategy: [fedpns], beta: [0.7, 0.8]}
""",
    )
    found = [(t.experiment.seed, t.experiment.strategy, t.experiment.parameters.get("alpha")) for t in s.trials]
    first = [(3, "fedpns", 1.0), (3, "fedpns", 2.0), (3, "fedavg", None), (3, "fedpns", 2.0)]
    assert found == first + [(1, *rest) for _, *rest in first]  # seed by seed
    assert s.axes == ["strategy", "alpha", "beta"]
    others = {trial.name: trial.experiment for trial in s.trials}
    partner = others[s.partner(s.trials[0], others)]
    assert (
        partner == Experiment(strategy="fedavg", nodes=20, rounds=5, seed=3) and s.partner(s.trials[2], others) is None
    )


def test_a_trial_is_its_configuration(tmp_path):
    """Not its place in the file, not its length, not how a number is written."""
    one = study(tmp_path, "axes: {sigma: [0.2, 0.50], strategy: [fedpns]}\nbase: {rounds: 10}\nseeds: 1")
    two = study(tmp_path, "axes: {strategy: [fedavg, fedpns]}\nbase: {sigma: 0.5, alpha: 2, rounds: 99}\nseeds: 1-2")
    assert one.trials[1].name == two.trials[1].name
    assert len({trial.name for trial in (*one.trials, *two.trials)}) == 5


def test_an_axis_may_move_several_settings(tmp_path):
    s = study(
        tmp_path, "axes:\n  size:\n    - {nodes: 50, fraction: 0.2}\n    - {nodes: 500, fraction: 0.02}\nseeds: 1"
    )
    assert [(t.experiment.nodes, t.experiment.per_round) for t in s.trials] == [(50, 10), (500, 10)]
    assert s.axes == ["nodes", "fraction"]


AXES = "axes: {sigma: [0.2, 0.3, 0.5], strategy: [fedpns, fedavg]}\nseeds: 1-5"


def test_changes_and_seeds(tmp_path):
    s = study(tmp_path, AXES, changes={"rounds": "3"}, seeds="1-2")
    assert len(s.trials) == 12 and {t.experiment.rounds for t in s.trials} == {3}
    assert len(s.whole) == 30 and s.trials == [t for t in s.whole if t.experiment.seed < 3]
    everything = study(tmp_path, AXES)
    assert everything.whole is everything.trials
    with pytest.raises(InputError, match=r"^alpha: '-1' is not allowed"):
        study(tmp_path, AXES, changes={"alpha": "-1"})
    with pytest.raises(InputError, match=r"rho: no trial of .* uses it"):
        study(tmp_path, AXES, changes={"rho": "2"})


def test_only_some_trials(tmp_path):
    some = study(tmp_path, AXES, seeds="1-2", only={"sigma": ["0.20", 0.5], "strategy": "fedavg"})
    found = {(t.experiment.sigma, t.experiment.strategy, t.experiment.seed) for t in some.trials}
    assert found == {(sigma, "fedavg", seed) for sigma in (0.2, 0.5) for seed in (1, 2)} and len(some.trials) == 4
    assert len(some.whole) == 30 and some.axes == ["sigma", "strategy"]
    # whatever the spelling, and also by what the file implies
    for only, count in (({"seed": "3.0"}, 6), ({"seed": [1.0, 2]}, 12), ({"selection": "pns"}, 15), ({"alpha": 2}, 15),
                        ({"devices": "off"}, 30), ({"centralised": "false"}, 30), ({}, 30)):  # fmt: skip
        assert len(study(tmp_path, AXES, only=only).trials) == count, only


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ({"sigma": ["0.4"]}, "only: no trial has sigma 0.4; choose from 0.2, 0.3, 0.5"),
        ({"sigma": [0.2, 0.4]}, "only: no trial has sigma 0.4; choose from 0.2, 0.3, 0.5"),
        ({"modle": ["mlr"]}, "only: 'modle' is not a setting of any trial; did you mean model?"),
        ({"gompertz": 1}, "only: 'gompertz' is not a setting of any trial; choose from strategy, selection"),
        ({"strategy": "fedavg", "alpha": [2]}, "only: strategy=fedavg alpha=2 leaves no trial"),
    ],
)
def test_what_no_trial_has_is_refused(tmp_path, only, message):
    with pytest.raises(InputError) as caught:
        study(tmp_path, AXES, only=only)
    assert str(caught.value).startswith(message) and caught.value.field == "only"


def test_large_seeds_are_told_apart(tmp_path):
    s = study(tmp_path, "seeds: [9223372036854775806, 9223372036854775807, 1234567, 1234568]", only={"seed": "1234567"})
    assert [t.experiment.seed for t in s.trials] == [1234567]


def test_errors_are_data(tmp_path):
    """The field, the value, and the place where it is written, without reading a message."""
    path = tmp_path / "s.yaml"
    for text, changes, field, value, line in (
        ("base:\n  sigma: 7\n", {}, "sigma", 7, 2),
        ("base: {}\nseeds: 5-1\n", {}, "seeds", "5-1", 2),
        ("base: {}\nplot:\n  over: x\n", {}, "plot.over", "x", 3),
        ("base:\n  sigma: 7\n", {"sigma": 8}, "sigma", 8, None),
    ):
        path.write_text(text)
        with pytest.raises(InputError) as caught:
            read_study(path, changes)
        error = caught.value
        assert (error.field, error.value) == (field, value)
        assert error.place == (f"{path}: line {line}" if line else "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: {nodes: 20}\naxes:\n  sigma: [0.2, 1.5]\n", "line 3: sigma: 1.5 is not allowed"),
        ("axes:\n  sgma: [0.2]\n", "line 2: sgma: unknown key .* did you mean sigma?"),
        ("base:\n  strategy: nothing\n", "line 2: strategy: 'nothing' is unknown"),
        ("axis: {sigma: [0.2]}\n", "line 1: axis: unknown key; did you mean axes?"),
        (
            "base: {}\ngrids:\n  - axes: {sigma: [0.2]}\n    sedes: 3\n",
            "line 4: grids.0.sedes: unknown key; did you mean seeds",
        ),
        ("axes:\n  sigma: 0.2\n", "line 2: axes.sigma: 0.2 is not allowed; it must be a list"),
        ("seeds: 5-1\n", "line 1: seeds: '5-1' is not allowed"),
        ("base: {}\ngrids:\n  - seeds: x\n", "line 3: seeds: 'x' is not allowed"),
        ("base: {strategy: fedavg}\naxes:\n  alpha: [1, 2]\n", "line 3: alpha: no trial of this study uses it"),
        ("base: {rho: 2}\n", "line 1: rho: no trial of this study uses it"),
        ("plot: {quantities: [nothing]}\n", "line 1: plot.quantities: 'nothing' is not allowed; choose from"),
        ("targets: [80]\n", "line 1: targets: .* it must be between 0 and 1"),
        ("layout: {actor: 2}\n", "line 1: layout.actor: unknown key; did you mean actors?"),
        ("layout: {actors: 0}\n", "line 1: layout.actors: 0 is not allowed; it must be at least 1"),
        ("layout:\n  actors: two\n", "line 2: layout.actors: 'two' is not allowed; it must be a number"),
        ("plot:\n  lines: []\n  grid: 3\n", "line 3: plot.grid: unknown key; choose from quantities, lines, over"),
        ("seeds: []\n", r"line 1: seeds: \[\] is not allowed; there must be at least one"),
        ("cpus_per_trial: 0\n", "line 1: cpus_per_trial: 0 is not allowed"),
        ("search: {target: 0.8}\n", "line 1: search.space: is missing; it has no default"),
        ("base: {nodes: 20}\nbase: {nodes: 30}\n", "line 2: base: is given twice"),
        ("base: [\n", "not a YAML file in line 2"),
        ("- 1\n", "must hold keys and values"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_with_line_and_key(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        study(tmp_path, text)


def test_seeds():
    assert parse_seeds("1-3,7") == [1, 2, 3, 7] and parse_seeds(4) == [4] and parse_seeds([2, "4-5"]) == [2, 4, 5]
