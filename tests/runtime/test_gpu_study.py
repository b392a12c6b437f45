"""Trials that get GPUs which torch cannot use."""

from fedpns_ray import load, read_study, run_study
from fedpns_ray.terminal.command_line import main

STUDY = "base: {nodes: 10, samples_per_node: 50, epochs: 1, rounds: 3}\n"


def test_refused_in_one_line_before_anything_starts(cluster, tmp_path, capsys):
    (tmp_path / "s.yaml").write_text(STUDY)
    command = ["study", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "o")]
    assert main(command) == 2
    printed = capsys.readouterr()
    *progress, refusal = printed.err.splitlines()
    assert refusal.startswith("fedpns: gpus_per_trial: machine ") and "torch sees no CUDA there" in refusal
    assert progress[-1].startswith("Ray: ") and not (tmp_path / "o").exists()
    assert main([*command, "--cpu-fallback"]) == 0
    (trial,) = (tmp_path / "o" / "trials").iterdir()
    assert load(trial).summary["device"] == "cpu"


def test_the_study_file_may_allow_it(cluster, tmp_path):
    (tmp_path / "s.yaml").write_text(STUDY + "cpu_fallback: true\n")
    assert main(["study", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "o")]) == 0
    (tmp_path / "t.yaml").write_text(STUDY + "gpus_per_trial: 0\n")
    assert main(["study", str(tmp_path / "t.yaml"), "--out", str(tmp_path / "p")]) == 0


def test_what_a_trial_logs_is_logged_here_under_its_name(cluster, tmp_path, caplog):
    study = read_study({
        "base": {"nodes": 10, "samples_per_node": 50, "epochs": 1, "rounds": 2, "fraction": 0.3},
        "layout": {"actors": 2, "gpus_per_actor": 0.5, "cpus_per_actor": 0.5},
        "cpu_fallback": True,
    })  # fmt: skip
    run_study(study, tmp_path / "o", progress=False)
    said = "GPUs are assigned, but torch sees no CUDA: nodes train on the CPU, as cpu_fallback allows"
    messages = [(r.levelname, r.getMessage()) for r in caplog.records if r.name.startswith("fedpns_ray")]
    assert messages == [("WARNING", f"{study.trials[0].name}: {said}")]
