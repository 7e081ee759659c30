# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""A small study: run, interrupted, continued and reported; numbers recomputed from the raw runs."""

import csv
import gzip
import json
import os
import re
import shlex
import shutil
import signal
from pathlib import Path

import mlflow
import numpy as np
import pytest
from filelock import FileLock
from helpers import BUNDLES, FEATURES, corrupt, history, new_database, run
from programs import Program
from servers import wait_for

from monai_iels.cli import main
from monai_iels.study import read_results
from monai_iels.tracking import Journal, local_database

TINY = {"features": FEATURES, "epochs": 4, "image_size": [32, 32], "datalists#count": 10, "datalists#size": 48}
TINY |= {"learning_rate": 0.003, "label_error": corrupt(0.2), "pictures": False}


def write_study(file, columns, seeds=2, bundle=str(BUNDLES / "wbc")):
    file.write_text(json.dumps({"bundle": bundle, "seeds": seeds, "columns": columns}))
    return file


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Run a study of which one variant fails, interrupted once, and return its file and folder."""
    folder = tmp_path_factory.mktemp("a study")
    drawn = {**TINY, "pictures": True}
    columns = {"U-Net": {**drawn, "layer#steps": 0}, "U-Net + layer": drawn, "broken": {**TINY, "loss": "$1 / 0"}}
    shutil.copytree(BUNDLES / "wbc", folder / "bundles" / "wbc")
    new_database(folder / "bundles" / "mlflow")
    file = write_study(folder / "tiny.yaml", columns, bundle=str(folder / "bundles" / "wbc"))
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
    assert re.search(r"^6/6  .*, seed \d: [A-Z]+ after ", log, re.MULTILINE)
    assert re.search(r"^U-Net, seed 1 +epoch 4/4  loss .* Dice ", log, re.MULTILINE)
    statuses = {path.parent.name + path.name: Journal(path / "tracking").status() for path in out.glob("*/seed-*")}
    assert sorted(statuses) == sorted(f"{v}seed-{s}" for v in ("u-net", "u-net-layer", "broken") for s in (0, 1))
    assert {name: status for name, status in statuses.items() if "broken" not in name} == {
        name: "FINISHED" for name in statuses if "broken" not in name
    }
    for path in out.glob("u-net*/seed-*"):
        assert [row["epoch"] for row in history(path)] == [1, 2, 3, 4]


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
        keys = ("dice", "dice_stopped_early", "dice_best", "roughness", "convexity")
        numbers = [f"{float(rows[name][key]):.3f} ± {float(rows[name][f'{key}_deviation']):.3f}" for key in keys]
        assert re.search(rf"^{re.escape(name)} +{' +'.join(numbers)}$", log, re.MULTILINE)
    truth = float(rows["U-Net"]["roughness_of_truth"])
    assert re.search(rf"^truth +{truth:.3f} .*\n\n?Dice is best at 1; ", log, re.MULTILINE)
    assert "(this run)" not in log  # the run of a study has no numbers
    named = [Path(line.split("  (")[0]) for line in log.splitlines() if line.endswith(")") and line.startswith("/")]
    assert {"panels.png", "report.html"} == {file.name for file in named}
    assert all(file.exists() for file in named)
    steps = r"^Predict more images of this kind \(U-Net.*\):\n  .* --args_file (.*) --dataset_dir"
    command = re.search(steps, log, re.MULTILINE)
    assert Path(*shlex.split(command[1])).name == "inference.json"
    assert Path(*shlex.split(command[1])).exists()
    assert f"mlflow ui --backend-store-uri {shlex.quote(Journal(out / 'tracking').address())}" in log
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
    (tmp_path / "results.json.gz").write_bytes((out / "results.json.gz").read_bytes())
    assert main(["study", "report", str(tmp_path)]) == 0
    assert (tmp_path / "table.csv").read_text() == (out / "table.csv").read_text()
    assert main(["study", "report", str(tmp_path / "nowhere")]) == 1


def test_other_settings_are_not_mixed_in(tiny, capsys):
    file, out, _ = tiny
    columns = json.loads(file.read_text())["columns"]
    columns["U-Net"]["epochs"] = 5
    (file.parent / "again").mkdir()
    bundle = str(file.parent / "bundles" / "wbc")
    other = write_study(file.parent / "again" / "tiny.yaml", columns, bundle=bundle)
    before = (out / "study.json").read_text(), (out / "tracking" / "journal.jsonl").read_text()
    assert main(["study", "run", str(other), "--output_dir", str(out)]) == 1
    assert "'epochs' was 4 in this folder, got 5; choose another --output_dir" in capsys.readouterr().err
    other = write_study(file.parent / "again" / "another.yaml", {"A": TINY})
    assert main(["study", "run", str(other), "--output_dir", str(out)]) == 1
    assert "'study' was tiny in this folder, got another; choose another --output_dir" in capsys.readouterr().err
    assert before == ((out / "study.json").read_text(), (out / "tracking" / "journal.jsonl").read_text())


def test_a_failure_stays_on_the_page(tiny):
    """Another command for another variant does not hide it, and the page's command covers both."""
    file, out, _ = tiny
    assert main(["study", "run", str(file), "--output_dir", f"{out}/../{out.name}", "--variants", "U-Net"]) == 0
    text = (out / "report.md").read_text()
    assert "Not finished: broken, seed 0, 1: FAILED (" in text
    assert "Command:\n\n    monai-iels study run tiny.yaml --preset cpu --seeds 2\n" in text


def test_a_study_without_its_trainings_is_reported_from_its_results(tiny, tmp_path):
    _, out, _ = tiny
    for name in ("study.json", "results.json.gz"):
        shutil.copy(out / name, tmp_path)
    assert main(["study", "report", str(tmp_path)]) == 0
    assert (tmp_path / "table.csv").read_text() == (out / "table.csv").read_text()
    for content in (b"{}", gzip.compress(b"{"), gzip.compress(b"[]"), gzip.compress(b"{}")):
        (tmp_path / "study.json").unlink(missing_ok=True)
        (tmp_path / "results.json.gz").write_bytes(content)
        with pytest.raises(ValueError, match=re.escape(str(tmp_path / "results.json.gz"))):
            read_results(tmp_path)


def test_pictures_can_be_left_out(tiny, tmp_path):
    _, out, _ = tiny
    folder = tmp_path / "page"
    for arguments, there in ([], True), (["--without_images"], False):
        assert main(["study", "report", str(out), "--output_dir", str(folder), *arguments]) == 0
        assert (folder / "panels.png").exists() == there
        assert ("panels" in (folder / "report.md").read_text()) == there


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
        f"{file}: the number of seeds must be at least 1, got 0",
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
