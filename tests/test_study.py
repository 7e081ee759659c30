# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Studies: run, interrupted, continued, reported; a variant that fails; numbers recomputed from the raw runs."""

import csv
import html
import json
import os
import re
import shlex
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from inspect import signature
from pathlib import Path

import mlflow
import numpy as np
import programs
import pytest
import torch
from filelock import FileLock
from helpers import BUNDLES, FEATURES, history, new_database, options, prepare, run
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from monai.transforms import Compose
from programs import Program, start_helper
from servers import Gate, files_with, wait_for

from monai_iels import Training
from monai_iels._files import write_json
from monai_iels.cli import main, run_program
from monai_iels.study import Study, read_results, read_study, select_variants
from monai_iels.study._definition import check_overrides, presets
from monai_iels.study._folder import StudySummary
from monai_iels.study._plan import check_unchanged, make_plan, write_summary
from monai_iels.study._report import _as_code, _as_text
from monai_iels.study._running import TrainingProcesses, _prepare_data
from monai_iels.tracking import Journal, local_database

STUDIES = sorted(BUNDLES.glob("*/studies/*.yaml"))
TINY = {"features": FEATURES, "epochs": 4, "image_size": [32, 32], "sample_count": 10, "sample_size": 48}
TINY |= {"learning_rate": 0.003, "noise_fraction": 0.2, "pictures": False}


def write_study(file, variants, seeds=2, bundle=str(BUNDLES / "wbc")):
    file.write_text(json.dumps({"bundle": bundle, "seeds": seeds, "variants": variants}))
    return file


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Run a study of which one variant fails, interrupted once, and return its file and folder."""
    folder = tmp_path_factory.mktemp("a study")
    drawn = {**TINY, "pictures": True}
    variants = {"U-Net": {**drawn, "iel_steps": 0}, "U-Net + layer": drawn, "broken": {**TINY, "loss": "$1 / 0"}}
    shutil.copytree(BUNDLES / "wbc", folder / "bundles" / "wbc")
    new_database(folder / "bundles" / "mlflow")
    file = write_study(folder / "tiny.yaml", variants, bundle=str(folder / "bundles" / "wbc"))
    out = folder / "out"
    command = ["study", "run", file, "--output_dir", out, "--jobs", "2"]
    logs = []
    for interrupted in (True, False):
        log = folder / f"{interrupted}.log"
        process = Program("monai_iels", *command, stdout=log)
        if interrupted:
            wait_for(lambda: len(list(out.glob("*/seed-0/history.csv"))) == 2, 600)
            os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
        logs.append((process.wait(900), log.read_text()))
        if interrupted:
            ended = [Journal(path.parent / "tracking").status() for path in out.glob("*/seed-0/history.csv")]
            assert set(ended) <= {"KILLED", "FINISHED"}
            assert Journal(out / "tracking").status() == "KILLED"
    return file, out, logs


def test_an_interrupted_study_goes_on(tiny):
    _, out, ((first, told), (second, log)) = tiny
    assert first == 130
    assert "the same command continues" in told
    assert "Traceback" not in told + log
    assert second == 1  # since a variant fails
    assert "left" in log
    assert re.search(r"^U-Net, seed 1 +epoch 4/4  loss .* Dice ", log, re.MULTILINE)
    statuses = {path.parent.name + path.name: Journal(path / "tracking").status() for path in out.glob("*/seed-*")}
    assert sorted(statuses) == sorted(f"{v}seed-{s}" for v in ("u-net", "u-net-layer", "broken") for s in (0, 1))
    assert {name: status for name, status in statuses.items() if "broken" not in name} == {
        name: "FINISHED" for name in statuses if "broken" not in name
    }
    for path in out.glob("u-net*/seed-*"):
        assert [row["epoch"] for row in history(path)] == [1, 2, 3, 4]


@pytest.mark.parametrize("count", [1, 2])
def test_a_training_is_a_process_or_several_that_torchrun_starts(count, tmp_path, monkeypatch):
    start_helper()
    monkeypatch.setattr("monai_iels.study._running.sys.executable", programs.__file__)
    overrides = {**TINY, "epochs": 1, "sample_count": 20}
    study = Study("s", BUNDLES / "wbc", {"a": overrides, "b": {**overrides, "batch_size": 3}}, [0], tmp_path / "s.yaml")
    plan = make_plan(study, tmp_path / "out", "cpu", "synthetic", new_database(tmp_path), count)
    training, odd = plan.trainings("parent")
    assert TrainingProcesses(1, per_training=count).run(training).status == training.journal.status() == "FINISHED"
    assert [row["epoch"] for row in history(training.folder.path)] == [1]
    is_shared = "DistributedDataParallel" in json.dumps(training.folder.read_config()["network"])
    assert is_shared == (count == 2)
    if count == 2:
        assert TrainingProcesses(1, per_training=count).run(odd).status == "FAILED"
        assert "must be a multiple of the 2 processes, got 3" in odd.journal.tags_and_parameters()["stopped"]


def test_runs_are_nested_under_one_parent(tiny):
    _, out, _ = tiny
    client = mlflow.MlflowClient(local_database(out.parent / "bundles" / "mlflow"))  # as for a training
    parent = client.get_run(Journal(out / "tracking").progress().run_id)
    assert parent.info.status == "FAILED"
    assert parent.data.tags["mlflow.note.content"].startswith("Compares U-Net, U-Net + layer")
    runs = client.search_runs([parent.info.experiment_id], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    finished = [r for r in runs if r.info.status == "FINISHED"]  # one that was killed before its first checkpoint stays
    assert sorted((r.data.tags["study.variant"], r.data.tags["study.seed"]) for r in finished) == [
        (variant, seed) for variant in ("U-Net", "U-Net + layer") for seed in ("0", "1")
    ]


def test_the_report_s_numbers_are_those_of_the_raw_runs(tiny):
    _, out, _ = tiny
    with (out / "table.csv").open(newline="") as stream:
        rows = {row["variant"]: row for row in csv.DictReader(stream)}
    dice = {}
    for variant, slug in (("U-Net", "u-net"), ("U-Net + layer", "u-net-layer")):
        per_seed, early = [], []
        for seed in (0, 1):
            with (out / slug / f"seed-{seed}" / "cases.csv").open(newline="") as stream:
                cases = list(csv.DictReader(stream))
            last = [row for row in cases if float(row["epoch"]) > 1]
            per_seed.append(np.mean([float(row["val_mean_dice"]) for row in last]))
            noisy = [row["val_dice_on_noisy_labels"] for row in history(out / slug / f"seed-{seed}")]
            at = float(np.argmax(noisy) + 1)
            early.append(np.mean([float(row["val_mean_dice"]) for row in cases if float(row["epoch"]) == at]))
        dice[variant] = np.mean(per_seed)
        assert float(rows[variant]["dice"]) == pytest.approx(np.mean(per_seed), abs=1e-4)
        assert float(rows[variant]["dice_deviation"]) == pytest.approx(np.std(per_seed, ddof=1), abs=1e-4)
        assert float(rows[variant]["dice_stopped_early"]) == pytest.approx(np.mean(early), abs=1e-4)
    gain = dice["U-Net + layer"] - dice["U-Net"]
    assert float(rows["U-Net + layer"]["dice_gain"]) == pytest.approx(gain, abs=1e-4)
    assert float(rows["U-Net + layer"]["dice_gain_low"]) <= gain <= float(rows["U-Net + layer"]["dice_gain_high"])


def test_a_failing_variant_is_reported(tiny):
    _, out, (_, (_, log)) = tiny
    assert "Not finished: broken, seed 0" in log
    for name in ("report.md", "report.html"):
        text = (out / name).read_text()
        assert "Not finished: broken, seed 0, 1: FAILED (" in text
        assert "The images are synthetic" in text
        assert "Preset cpu: smaller than in the paper" in text
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "http" not in page.replace("http-equiv", "")  # everything is in the page


def test_a_study_ends_with_its_table_its_files_and_what_to_type_next(tiny):
    _, out, (_, (_, log)) = tiny
    with (out / "table.csv").open(newline="") as stream:
        rows = {row["variant"]: row for row in csv.DictReader(stream)}
    for name in ("U-Net", "U-Net + layer"):
        numbers = [f"{float(rows[name][key]):.3f}" for key in ("dice", "roughness", "convexity")]
        assert re.search(rf"^{re.escape(name)} +{' +'.join(numbers)}$", log, re.MULTILINE)
    truth = float(rows["U-Net"]["roughness_of_truth"])
    assert re.search(rf"^truth +{truth:.3f} .*\nDice is best at 1; ", log, re.MULTILINE)
    assert "(this run)" not in log  # the run of a study has no numbers
    named = [Path(line.split("  (")[0]) for line in log.splitlines() if line.endswith(")") and line.startswith("/")]
    assert {"panels.png", "curves.png", "report.html", "last.png"} == {file.name for file in named}
    assert all(file.exists() for file in named)
    steps = r"^Predict more images of this kind \(U-Net.*\):\n  .* --args_file (.*) --dataset_dir"
    command = re.search(steps, log, re.MULTILINE)
    assert Path(*shlex.split(command[1])).name == "inference.json"
    assert Path(*shlex.split(command[1])).exists()
    assert f"mlflow ui --backend-store-uri {shlex.quote(Journal(out / 'tracking').address())}" in log
    assert "docs/start/tutorial.md" in log
    for text in (log, (out / "u-net" / "seed-0" / "console.log").read_text()):
        assert "INFO" not in text  # of MONAI and MLflow


def test_the_same_seed_gives_the_same_numbers(tiny, tmp_path):
    _, out, _ = tiny
    arguments = json.loads((out / "u-net-layer" / "seed-1" / "arguments.json").read_text())
    arguments.update(output_dir=str(tmp_path), track=False, run_tags={})
    run(**arguments)
    again, before = (history(folder) for folder in (tmp_path, out / "u-net-layer" / "seed-1"))
    assert [row["val_mean_dice"] for row in again] == [row["val_mean_dice"] for row in before]


def test_a_report_needs_only_the_results(tiny, tmp_path):
    _, out, _ = tiny
    (tmp_path / "results.json").write_bytes((out / "results.json").read_bytes())
    assert main(["study", "report", str(tmp_path)]) == 0
    assert (tmp_path / "table.csv").read_text() == (out / "table.csv").read_text()
    assert main(["study", "report", str(tmp_path / "nowhere")]) == 1


def test_other_settings_are_not_mixed_in(tiny, capsys):
    file, out, _ = tiny
    variants = json.loads(file.read_text())["variants"]
    variants["U-Net"]["epochs"] = 5
    (file.parent / "again").mkdir()
    bundle = str(file.parent / "bundles" / "wbc")
    other = write_study(file.parent / "again" / "tiny.yaml", variants, bundle=bundle)
    before = (out / "study.json").read_text(), (out / "tracking" / "journal.jsonl").read_text()
    assert main(["study", "run", str(other), "--output_dir", str(out)]) == 1
    assert "'epochs' was 4 in this folder, got 5; choose another --output_dir" in capsys.readouterr().err
    other = write_study(file.parent / "again" / "another.yaml", {"A": TINY})
    assert main(["study", "run", str(other), "--output_dir", str(out)]) == 1
    assert "'study' was tiny in this folder, got another; choose another --output_dir" in capsys.readouterr().err
    assert before == ((out / "study.json").read_text(), (out / "tracking" / "journal.jsonl").read_text())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "a study in YAML"),
        ("[1]", "must hold keys and values (a study), got [1]"),
        ("{bundle: wbc, variants: {a: {}}}", "must have the keys bundle, variants and seeds, got bundle, variants"),
        ("{bundle: wbc, variants: {a: 1}, seeds: 1}", "variant 'a' must be a name with overrides"),
        ("{bundle: wbc, variants: {}, seeds: 1}", "'variants' must list at least one variant"),
        ("{bundle: wbc, variants: {a: {}}, seeds: 0}", "'seeds' must be at least 1, got 0"),
        ("{bundle: wbc, variants: {a: {}}, seeds: many}", "'seeds' must be at least 1, got many"),
        ("{bundle: wcb, variants: {a: {}}, seeds: 1}", "there is no bundle 'wcb'"),
        ("{bundle: WBC, variants: {a b: {}, a-b: {}}, seeds: 1}", "must differ in letters or digits"),
        ("{bundle: WBC, variants: {noisy / truth: {}}, seeds: 1}", "a variant cannot be called 'truth'"),
        ("{bundle: WBC, variants: {a: {epoch: 3}}, seeds: 1}", "'epochs'"),
        ("{bundle: WBC, variants: {5: {}}, seeds: 1}", "variant '5' must be a name with overrides"),
        ("{bundle: WBC, variants: {a: {1: 2}}, seeds: 1}", "variant 'a' must be a name with overrides"),
        ("{bundle: WBC, variants: {a: {run_name: x}}, seeds: 1}", "'run_name' is set by the study itself; remove it"),
        ("{bundle: WBC, variants: {a: {}}, seeds: 1, 1: 2}", "keys must be words, got 1"),
        ("{bundle: WBC, variants: {a: {track: false}}, seeds: 1}", "'track' is set by the study itself; remove it"),
        ("bundle: wbc\n\tseeds: 1", "in line 2"),
    ],
)
def test_a_wrong_study_is_refused_in_one_sentence(content, sentence, tmp_path, capsys):
    file = tmp_path / "wrong.yaml"
    file.write_text(content.replace("WBC", str(BUNDLES / "wbc")))
    assert main(["study", "run", str(file), "--output_dir", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_wrong_data_are_refused_before_any_training(tmp_path, capsys):
    file = write_study(tmp_path / "s.yaml", {"a": {}})
    out = tmp_path / "out"
    assert main(["study", "run", str(file), "--output_dir", str(out), "--dataset_dir", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert str(tmp_path) in error
    assert "'Dataset 1'" in error
    assert not out.exists()
    assert main(["study", "run", str(file), "--preset", "large", "--output_dir", str(out)]) == 1
    assert "--preset: there is no preset 'large'; choose from full, cpu, paper" in capsys.readouterr().err
    assert main(["study", "run", str(file), "--jobs", "0", "--output_dir", str(out)]) == 1
    assert main(["study", "run", str(file), "--seeds", "0", "--output_dir", str(out)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "--jobs must be at least 1, got 0",
        "--seeds must be at least 1, got 0",
    ]
    assert main(["study", "run", str(file), "--output_dir", str(file)]) == 1
    assert str(file) in capsys.readouterr().err
    assert file.read_text().startswith("{")
    assert not list(out.glob("*/seed-*"))


def test_one_command_at_a_time(tmp_path, capsys):
    file = write_study(tmp_path / "s.yaml", {"a": TINY})
    out = tmp_path / "out"
    out.mkdir()
    with FileLock(out / ".study.lock"):
        assert main(["study", "run", str(file), "--output_dir", str(out)]) == 1
    assert "another process is running the study" in capsys.readouterr().err


def test_a_failure_stays_on_the_page(tiny):
    """Another command for another variant does not hide it, and the page's command covers both."""
    file, out, _ = tiny
    assert main(["study", "run", str(file), "--output_dir", f"{out}/../{out.name}", "--variants", "U-Net"]) == 0
    text = (out / "report.md").read_text()
    assert "Not finished: broken, seed 0, 1: FAILED (" in text
    assert "Command: `monai-iels study run tiny.yaml --preset cpu --seeds 2`" in text


def test_a_study_without_its_trainings_is_reported_from_its_results(tiny, tmp_path):
    _, out, _ = tiny
    for name in ("study.json", "results.json"):
        shutil.copy(out / name, tmp_path)
    assert main(["study", "report", str(tmp_path)]) == 0
    assert (tmp_path / "table.csv").read_text() == (out / "table.csv").read_text()
    for content in ("{", "[]", "{}"):
        (tmp_path / "study.json").unlink(missing_ok=True)
        (tmp_path / "results.json").write_text(content)
        with pytest.raises(ValueError, match=re.escape(str(tmp_path / "results.json"))):
            read_results(tmp_path)


def test_pictures_can_be_left_out(tiny, tmp_path):
    _, out, _ = tiny
    folder = tmp_path / "page"
    for arguments, there in ([], True), (["--without_images"], False):
        assert main(["study", "report", str(out), "--output_dir", str(folder), *arguments]) == 0
        assert (folder / "panels.png").exists() == there
        assert ("panels" in (folder / "report.md").read_text()) == there


LIVE, SCRIPT = '=HYPERLINK("http://x")', "<script>alert(1)</script>"
KILL = "__import__('os').kill(__import__('os').getpid(), 9)"
KILL_LATER = f"lambda self, pred, label: {KILL} if pred.requires_grad else None"


@pytest.fixture(scope="module")
def hostile(server, tmp_path_factory):
    """Run a study on a server with a password, of which one training is killed before it is tracked, and one after."""
    folder = tmp_path_factory.mktemp("hostile")
    short = {**TINY, "epochs": 1}
    variants = {
        LIVE: short,
        SCRIPT: {**short, "loss": f"$type('Loss', (torch.nn.Module,), {{'forward': {KILL_LATER}}})()"},
        "`a` *b*": {**short, "loss": f"${KILL}"},
    }
    file = write_study(folder / "s.yaml", variants, seeds=1)
    command, log = ["study", "run", file, "--output_dir", folder / "out"], folder / "log"
    with Gate(server, "me", "Xy9first@/Zw8second") as gate:
        uri = f"http://me:Xy9first@/Zw8second@{gate.host}"
        command += ["--preset", "cpu", "--jobs", "2", "--tracking_uri", uri]
        elsewhere = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}  # goes after the option
        Program("monai_iels", *command, stdout=log, env=elsewhere).wait()
    return folder / "out", log.read_text(), gate.host


def test_a_study_s_password_is_used_and_written_nowhere(hostile, server):
    out, log, host = hostile
    assert not files_with(out, "Xy9first", "Zw8second")
    assert not files_with(server.folder, "Xy9first", "Zw8second")
    assert "Xy9first" not in log
    assert Journal(out / "tracking").progress().address == f"http://{host}"
    assert Journal(out / "hyperlink-http-x" / "seed-0" / "tracking").status() == "FINISHED"


def test_a_killed_training_is_killed_everywhere(hostile, server):
    out, log, _ = hostile
    parent = Journal(out / "tracking").progress().run_id
    client = mlflow.MlflowClient(server.uri)
    where = f"tags.`mlflow.parentRunId` = '{parent}'"
    runs = client.search_runs([client.get_run(parent).info.experiment_id], where)
    statuses = {LIVE: "FINISHED", SCRIPT: "KILLED", "`a` *b*": "KILLED"}
    assert {run.data.tags["study.variant"]: run.info.status for run in runs} == statuses
    page = html.unescape((out / "report.html").read_text())
    for variant in (SCRIPT, "`a` *b*"):
        assert f"{variant}, seed 0: KILLED after" in log
        assert f"Not finished: {variant}, seed 0: KILLED (The process ended with exit code -9.)." in page
    assert "FAILED" not in page + (out / "report.md").read_text() + (out / "table.csv").read_text()


def test_names_stay_text_on_the_page_and_in_the_table(hostile):
    out, _, _ = hostile
    with (out / "table.csv").open(newline="") as stream:
        rows = {row["variant"]: row for row in csv.DictReader(stream)}
    assert list(rows) == [f"'{LIVE}", SCRIPT, "`a` *b*"]
    assert float(rows[f"'{LIVE}"]["dice"]) >= 0
    for name in ("report.md", "report.html"):
        assert "<script" not in (out / name).read_text().lower()
    lines = (out / "report.md").read_text().splitlines()
    assert any(line.startswith('| =HYPERLINK("http\\://x") | ') for line in lines)
    assert "| &lt;script&gt;alert(1)&lt;/script&gt; | KILLED |  |  |  |  |" in lines
    assert r"| \`a\` \*b\* | KILLED |  |  |  |  |" in lines


def test_markdown_shows_text_as_it_is():
    markdown = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": False})
    for text in (
        LIVE,
        SCRIPT,
        "a | b",
        "[x](javascript:1)",
        "*a* _b_ ~~c~~ `d` iel_steps",
        "a &amp; b\\",
        "a@b.c www.x",
    ):
        shown = html.unescape(markdown.render(f"Note: {_as_text(text)}"))
        assert shown == f"<p>Note: {text}</p>\n"
        assert html.unescape(markdown.render(f"Note: {_as_code(text)}")) == f"<p>Note: <code>{text}</code></p>\n"


STUB = """#!{python}
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--args_file") + 1]).parent
(folder / "seen.json").write_text(json.dumps([sys.argv[1:], dict(os.environ)]))
print("the last words", flush=True)
{ending}
"""


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Run a small program instead of a training, and return a training of which it ends in some way."""

    def make(ending):
        program = tmp_path / "program"
        program.write_text(STUB.format(python=sys.executable, ending=ending))
        program.chmod(0o755)
        monkeypatch.setattr("monai_iels.study._running.sys.executable", str(program))
        study = Study("s", BUNDLES / "wbc", {"a": {}}, [0], tmp_path / "s.yaml")
        return make_plan(study, tmp_path / "out", "cpu", "synthetic", None).trainings("parent")[0]

    return make


def seen(training):
    return json.loads((training.folder.path / "seen.json").read_text())


@pytest.mark.parametrize(
    ("ending", "status", "reason"),
    [
        ("sys.exit(3)", "FAILED", "the last words"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "KILLED", "The process ended with exit code -9."),
    ],
)
def test_a_training_that_cannot_tell_how_it_ended_is_recorded(stub, ending, status, reason, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    training = stub(ending)
    assert TrainingProcesses(3, {"PASSWORD": "x"}).run(training).status == status
    assert training.journal.status() == status
    tags = [entry.values for entry in training.journal.entries() if entry.kind == "tags"]
    assert tags == [{**training.arguments["run_tags"], "stopped": reason}]
    words, environment = seen(training)
    assert words[:3] == ["-m", "monai.bundle", "run"]
    assert environment["PASSWORD"] == "x"
    assert environment["OMP_NUM_THREADS"] == "3"
    journal = training.journal.entries()
    assert TrainingProcesses(3).run(training).status == status  # again: the run is closed already
    assert training.journal.entries() == journal


@pytest.mark.parametrize(
    ("before", "saved", "resumed"),
    [("KILLED", True, "True"), ("FAILED", True, "False"), ("KILLED", False, "False"), (None, True, "True")],
)
def test_a_training_is_resumed_unless_it_failed(stub, before, saved, resumed):
    training = stub("sys.exit(0)")
    training.journal.begin(key="k", tracking_uri="", experiment="e", name="n")
    if before:
        training.journal.append("status", status=before)
    if saved:
        training.folder.last_state.touch()
    TrainingProcesses(1).run(training)
    words, _ = seen(training)
    assert words[-2:] == ["--resume", resumed]


def test_all_trainings_are_stopped_together(stub):
    training = stub("time.sleep(60)")
    processes = TrainingProcesses(1)
    with ThreadPoolExecutor() as pool:
        future = pool.submit(processes.run, training)
        wait_for((training.folder.path / "seen.json").exists, 60)
        processes.stop()
        assert future.result().status == "KILLED"
    assert [child.returncode for child in processes.children] == [-signal.SIGTERM]
    assert not training.journal.entries()  # it never began
    (training.folder.path / "seen.json").unlink()
    assert processes.run(training).status == "KILLED"
    assert not (training.folder.path / "seen.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("ignored", [False, True])  # nohup ignores SIGHUP
def test_signals_end_a_command_as_ctrl_c_does(number, ignored, monkeypatch):
    monkeypatch.setattr("monai_iels.cli.main", lambda: signal.raise_signal(number))
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
        with pytest.raises(SystemExit if ignored else KeyboardInterrupt):
            run_program()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_a_folder_keeps_all_that_was_asked_for(tmp_path):
    file = write_study(tmp_path / "s.yaml", {"A": {}, "B": {}, "C": {}}, seeds=3)
    names = (["A"], 2, "synthetic"), (["B"], 1, "synthetic"), (["C"], 3, str(tmp_path))
    summaries = []
    for variants, seeds, data in names:
        plan = make_plan(select_variants(read_study(file, seeds), variants), tmp_path / "out", "cpu", data, None)
        write_summary(plan)
        summaries.append(StudySummary.read(plan.folder.summary))
    assert [list(summary.variants) for summary in summaries] == [["A"], ["A", "B"], ["A", "B", "C"]]
    assert [summary.seeds for summary in summaries] == [[0, 1], [0, 1], [0, 1, 2]]
    assert [summary.command for summary in summaries] == [
        "monai-iels study run s.yaml --preset cpu --seeds 2 --variants A",
        "monai-iels study run s.yaml --preset cpu --seeds 2 --variants A B",
        "monai-iels study run s.yaml --preset cpu --seeds 3 --dataset_dir DIR",
    ]


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_every_study_names_what_its_bundle_has(file):
    found = read_study(file)
    assert found.bundle.name == file.parts[-3]
    check_overrides(found)


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_every_variant_can_be_built(file):
    found = read_study(file)
    for overrides in found.variants.values():
        parser = ConfigParser(json.loads((found.bundle / "configs" / "train.json").read_text()))
        parser.update({**presets(found.bundle)["cpu"], **overrides, "device": "cpu"})
        parser["features"] = FEATURES
        is_strong = overrides.get("iel_spacing") == 1.0 or overrides.get("iel_steps", 0) > 37
        if is_strong and parser["evolution"]["_target_"] == "monai_iels.HeatDiffusion":
            with pytest.warns(UserWarning, match="amplifies up to"):
                parser.get_parsed_content("layer")
        if found.bundle.name == "cityscapes":  # the extra is not installed; test_street_networks.py builds its networks
            parser["network_def"] = {"_target_": "BasicUNet", "features": FEATURES}
        for key in (
            "network",
            "train#loss",
            "train#preprocessing",
            "validate#preprocessing",
            "validate#postprocessing",
        ):
            assert callable(parser.get_parsed_content(key))
        assert parser.get_parsed_content("optimizer").param_groups


@pytest.mark.filterwarnings("ignore:.*amplifies up to")
@pytest.mark.parametrize("file", STUDIES, ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_a_training_accepts_every_variant(file, tmp_path):
    """Its keys, its values, and where its layer is."""
    found = read_study(file)
    for overrides in found.variants.values():
        small = options(found.bundle.name, tmp_path, **presets(found.bundle)["cpu"]) | overrides
        small |= {"features": FEATURES, "device": "cpu"}
        if "network_def" in small:  # of cityscapes, whose networks need an extra that is not installed
            small = {key: value for key, value in small.items() if not key.startswith("network_def#")}
        prepare("Training", **small)._check_layer()


def test_the_variants_of_the_quickstart_differ_in_the_layer_alone():
    study = read_study(BUNDLES / "wbc" / "studies" / "quickstart.yaml")
    without, with_layer = study.variants.values()
    assert without.pop("iel_steps") == 0
    assert with_layer.pop("iel_steps") > 0
    assert without == with_layer
    assert without["noise_fraction"] > 0


@pytest.mark.parametrize("bundle", ["wbc", "hippocampus"])
def test_the_majority_filter_takes_out_what_is_alone(bundle):
    parser = ConfigParser(json.loads((BUNDLES / bundle / "configs" / "train.json").read_text()))
    label = torch.zeros(1, *[9] * parser["spatial_dims"])
    label[:, 3:] = 1
    noisy = label.clone()
    noisy[(0, *[6] * parser["spatial_dims"])] = 2
    for repair, expected in (("@majority_filter", label), ([], noisy)):
        parser["repair"] = repair
        parser.parse(reset=True)
        repaired = Compose(parser.get_parsed_content("repair"))({"label": MetaTensor(noisy)})["label"]
        torch.testing.assert_close(repaired.as_tensor(), expected, check_dtype=False)


@pytest.mark.parametrize("bundle", ["refuge", "hippocampus"])
def test_hulls_fill_labels_and_predictions_by_region(bundle):
    parser = ConfigParser(json.loads((BUNDLES / bundle / "configs" / "train.json").read_text()))
    parser.update(
        {"repair": "@hull_of_label", "smoothing": "@hull_of_prediction", "regions": [[1, 2]], "hull_radius": 1.0}
    )
    label = torch.zeros(1, *[12] * parser["spatial_dims"])
    label[:, 2:10, 2:10] = 1
    label[:, 6:8, 4:8] = 2
    dented = label.clone()
    dented[:, 4:, 5] = 0
    logits = 3 * torch.nn.functional.one_hot(dented[0].long(), 3).movedim(-1, 0).float()
    repaired = Compose(parser.get_parsed_content("repair"))({"label": MetaTensor(dented)})["label"].as_tensor()
    predicted = parser.get_parsed_content("smoothing")({"pred": MetaTensor(logits)})["pred"].as_tensor()
    assert torch.equal(repaired > 0, label > 0)
    assert torch.equal(repaired[dented > 0], dented[dented > 0])
    assert predicted.shape == logits.shape
    assert torch.equal(predicted.argmax(0), repaired[0])


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("epoch", "preset 'cpu': unknown key 'epoch'"),
        ("output_dir", "preset 'cpu': 'output_dir' is set by the study itself"),
    ],
)
def test_a_preset_is_checked_as_a_variant_is(tmp_path, capsys, key, message):
    shutil.copytree(BUNDLES / "wbc" / "configs", tmp_path / "mine" / "configs")
    (tmp_path / "mine" / "presets.yaml").write_text(json.dumps({"cpu": {key: 3}}))
    file = write_study(tmp_path / "study.yaml", {"a": {}}, bundle="mine")
    assert main(["study", "run", str(file), "--preset", "cpu", "--output_dir", str(tmp_path / "out")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


OF_THE_STUDY = {"bundle_root", "experiment_name", "resume", "run_name", "run_tags", "track", "tracking_uri"}


@pytest.mark.parametrize("key", sorted(signature(Training).parameters.keys() - {"config_file", "settings"}))
def test_a_variant_may_set_what_a_training_takes(key, tmp_path):
    for mistyped, sentence in (False, f"'{key}' is set by the study itself"), (True, f"unknown key '{key}s': did you"):
        study = Study("s", BUNDLES / "wbc", {"a": {key + "s" * mistyped: "x"}}, [0], tmp_path / "s.yaml")
        refused = mistyped or key in OF_THE_STUDY
        with pytest.raises(ValueError, match=sentence) if refused else nullcontext():
            check_overrides(study)


def test_a_variant_may_have_keys_of_its_own(tmp_path):
    own = {"known_keys": ["width"], "width": 4, "features": "$[@width] * 6"}
    check_overrides(Study("s", BUNDLES / "wbc", {"a": own}, [0], tmp_path / "s.yaml"))
    assert prepare("Training", **options("wbc", tmp_path, **own))["features"] == [4] * 6


def test_parameters_of_the_run_are_no_keys_of_the_config_that_lists_the_data(tmp_path):
    shutil.copytree(BUNDLES / "wbc" / "configs", tmp_path / "mine" / "configs")
    preset = {**TINY, "pretrained": "%model.pt", "known_keys": "mine", "mine": 3}  # MONAI would open a file after %
    (tmp_path / "mine" / "presets.yaml").write_text(json.dumps({"cpu": preset}))
    study = Study("s", tmp_path / "mine", {"a": {}}, [0], tmp_path / "s.yaml")
    plan = make_plan(study, tmp_path / "out", "cpu", "synthetic", "sqlite:///mlflow.db", 2)
    check_overrides(study)
    _prepare_data(plan)
    assert len(list((tmp_path / "out" / "cache").glob("synthetic-*-10-48-*"))) == 1


def test_trainings_of_one_process_are_not_mixed_with_those_of_several(tmp_path):
    study = Study("s", BUNDLES / "wbc", {"a": {}}, [0], tmp_path / "s.yaml")
    write_study(study.file, study.variants, seeds=1)
    one, two = (make_plan(study, tmp_path / "out", "cpu", "synthetic", None, count) for count in (1, 2))
    for plan, other in ((one, two), (two, one)):
        write_summary(plan)
        (training,) = plan.trainings()
        write_json(training.arguments, training.folder.study_arguments)
        check_unchanged(plan)
        with pytest.raises(ValueError, match=r"'config_file' was .* in this folder, got .*; choose another"):
            check_unchanged(other)


def test_the_page_names_every_study():
    page = (BUNDLES.parent / "docs" / "do" / "studies.md").read_text("utf-8")
    assert all(f"`{file.parts[-3]}/studies/{file.name}`" in page for file in STUDIES)


def test_some_variants_keep_the_baseline_of_their_group():
    found = read_study(BUNDLES / "wbc" / "studies" / "noisy_labels.yaml")
    some = select_variants(found, ["clean labels / majority filter"])
    assert list(some.variants) == ["clean labels / U-Net", "clean labels / majority filter"]
    with pytest.raises(ValueError, match=r"--variants: there is no variant 'U-Net'; choose from clean labels . U-Net"):
        select_variants(found, ["U-Net"])


def test_the_file_s_name_is_found_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = Path(os.path.relpath(STUDIES[-1], tmp_path))
    assert read_study(relative).bundle.is_dir()
