# Copyright the monai_iels contributors
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#     http://www.apache.org/licenses/LICENSE-2.0
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""Studies: run, interrupted, continued, reported; a variant that fails; numbers recomputed from the raw runs."""

import csv
import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import mlflow
import numpy as np
import pytest
import torch
from filelock import FileLock
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from monai.transforms import Compose
from servers import Gate, files_with, wait_for
from test_bundle import BUNDLES, FEATURES, history, run

from monai_iels import study
from monai_iels.bundle import compose
from monai_iels.handlers.addresses import embedded
from monai_iels.handlers.journal import Journal
from monai_iels.pictures import study_curves, study_panels
from monai_iels.study import collect, difference, table, write_report
from monai_iels.study.__main__ import main
from monai_iels.study.report import _code, _plain, _settings
from monai_iels.study.running import _outcomes

STUDIES = sorted(BUNDLES.glob("*/studies/*.yaml"))
TINY = {"features": FEATURES, "epochs": 4, "image_size": [32, 32], "sample_count": 10, "sample_size": 48}
TINY |= {"learning_rate": 0.003, "noise_fraction": 0.2}


def write_study(file, variants, seeds=2, bundle=str(BUNDLES / "wbc")):
    file.write_text(json.dumps({"bundle": bundle, "seeds": seeds, "variants": variants}))
    return file


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Run a study of which one variant fails, interrupted once, and return its file and folder."""
    folder = tmp_path_factory.mktemp("a study")
    variants = {"U-Net": {**TINY, "iel_steps": 0}, "U-Net + IEL": TINY, "broken": {**TINY, "loss": "$1 / 0"}}
    file = write_study(folder / "tiny.yaml", variants)
    out = folder / "out"
    command = [sys.executable, "-m", "monai_iels.study", "run", str(file), "--output_dir", str(out), "--jobs", "2"]
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    logs = []
    for interrupted in (True, False):
        with (folder / f"{interrupted}.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
            if interrupted:
                wait_for(lambda: len(list(out.glob("*/seed-0/history.csv"))) == 2, 120)
                os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
            code = process.wait(300)
        logs.append((code, (folder / f"{interrupted}.log").read_text()))
        if interrupted:
            ended = [Journal(path.parent / "tracking").status() for path in out.glob("*/seed-0/history.csv")]
            assert set(ended) <= {"KILLED", "FINISHED"}
            assert Journal(out / "tracking").status() == "KILLED"
    return file, out, logs


def test_an_interrupted_study_goes_on(tiny):
    _, out, ((first, told), (second, log)) = tiny
    assert first == 130
    assert "The same command goes on" in told
    assert "Traceback" not in told + log
    assert second == 1  # since a variant fails
    assert "left" in log
    statuses = {path.parent.name + path.name: Journal(path / "tracking").status() for path in out.glob("*/seed-*")}
    assert sorted(statuses) == sorted(f"{v}seed-{s}" for v in ("u-net", "u-net-iel", "broken") for s in (0, 1))
    assert {name: status for name, status in statuses.items() if "broken" not in name} == {
        name: "FINISHED" for name in statuses if "broken" not in name
    }
    for path in out.glob("u-net*/seed-*"):
        assert [row["epoch"] for row in history(path)] == [1, 2, 3, 4]


def test_runs_are_nested_under_one_parent(tiny):
    _, out, _ = tiny
    about = json.loads((out / "study.json").read_text())
    client = mlflow.MlflowClient(embedded(out))
    parent = client.get_run(about["run_id"])
    assert parent.info.status == "FAILED"
    runs = client.search_runs([parent.info.experiment_id], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    finished = [r for r in runs if r.info.status == "FINISHED"]  # one that was killed before its first checkpoint stays
    assert sorted((r.data.tags["study.variant"], r.data.tags["study.seed"]) for r in finished) == [
        (variant, seed) for variant in ("U-Net", "U-Net + IEL") for seed in ("0", "1")
    ]


def test_the_report_s_numbers_are_those_of_the_raw_runs(tiny):
    _, out, _ = tiny
    with (out / "table.csv").open(newline="") as stream:
        rows = {row["variant"]: row for row in csv.DictReader(stream)}
    dice = {}
    for variant, slug in (("U-Net", "u-net"), ("U-Net + IEL", "u-net-iel")):
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
    gain = dice["U-Net + IEL"] - dice["U-Net"]
    assert float(rows["U-Net + IEL"]["dice_gain"]) == pytest.approx(gain, abs=1e-4)
    assert float(rows["U-Net + IEL"]["dice_gain_low"]) <= gain <= float(rows["U-Net + IEL"]["dice_gain_high"])


def test_a_failing_variant_is_reported(tiny):
    _, out, (_, (_, log)) = tiny
    assert "Not finished: broken, seed 0" in log
    for name in ("report.md", "report.html"):
        text = (out / name).read_text()
        assert "Not finished: broken, seed 0, 1: FAILED (" in text
        assert "drawn" in text
        assert "Preset cpu: smaller than the paper" in text
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "http" not in page.replace("http-equiv", "")  # everything is in the page


def test_the_same_seed_gives_the_same_numbers(tiny, tmp_path):
    _, out, _ = tiny
    arguments = json.loads((out / "u-net-iel" / "seed-1" / "arguments.json").read_text())
    arguments.update(output_dir=str(tmp_path), track=False, run_tags={})
    run(arguments.pop("config_file"), **arguments)
    again, before = (history(folder) for folder in (tmp_path, out / "u-net-iel" / "seed-1"))
    assert [row["val_mean_dice"] for row in again] == [row["val_mean_dice"] for row in before]


def test_a_report_needs_only_the_results(tiny, tmp_path):
    _, out, _ = tiny
    (tmp_path / "results.json").write_bytes((out / "results.json").read_bytes())
    assert main(["report", str(tmp_path)]) == 0
    assert (tmp_path / "table.csv").read_text() == (out / "table.csv").read_text()
    assert main(["report", str(tmp_path / "nowhere")]) == 1


def test_other_settings_are_not_mixed_in(tiny, capsys):
    file, out, _ = tiny
    variants = json.loads(file.read_text())["variants"]
    variants["U-Net"]["epochs"] = 5
    (file.parent / "again").mkdir()
    other = write_study(file.parent / "again" / "tiny.yaml", variants)
    before = (out / "study.json").read_text(), (out / "tracking" / "journal.jsonl").read_text()
    assert main(["run", str(other), "--output_dir", str(out)]) == 1
    assert "expected epochs 4, as before, found 5. Choose another --output_dir." in capsys.readouterr().err
    other = write_study(file.parent / "again" / "another.yaml", {"A": TINY})
    assert main(["run", str(other), "--output_dir", str(out)]) == 1
    assert "expected study tiny, as before, found another." in capsys.readouterr().err
    assert before == ((out / "study.json").read_text(), (out / "tracking" / "journal.jsonl").read_text())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "expected a study in YAML"),
        ("[1]", "expected bundle, variants and seeds, found list"),
        ("{bundle: wbc, variants: {a: {}}}", "expected bundle, variants and seeds"),
        ("{bundle: wbc, variants: {a: 1}, seeds: 1}", "a dictionary of overrides each"),
        ("{bundle: wbc, variants: {a: {}}, seeds: 0}", "a number of seeds from 1"),
        ("{bundle: wcb, variants: {a: {}}, seeds: 1}", "the name of a bundle"),
        ("{bundle: WBC, variants: {a b: {}, a-b: {}}, seeds: 1}", "names differ"),
        (
            "{bundle: WBC, variants: {a: {epoch: 3}}, seeds: 1}",
            "variant 'a', 'epoch': expected a key that a config defines, found an unknown one. The nearest is 'epochs'",
        ),
        ("{bundle: WBC, variants: {5: {}}, seeds: 1}", "a name and a dictionary of overrides each"),
        ("{bundle: WBC, variants: {a: {1: 2}}, seeds: 1}", "a name and a dictionary of overrides each"),
        ("{bundle: WBC, variants: {a: {run_name: 2020-01-01}}, seeds: 1}", "expected no 'run_name', found one"),
        ("{bundle: WBC, variants: {a: {}}, seeds: 1, 1: 2}", "expected bundle, variants and seeds, found ['1', "),
        ("{bundle: WBC, variants: {a: {track: false}}, seeds: 1}", "expected no 'track', found one. A study sets it."),
        ("bundle: wbc\n\tseeds: 1", "in line 2"),
    ],
)
def test_a_wrong_study_is_refused_in_one_sentence(content, sentence, tmp_path, capsys):
    file = tmp_path / "wrong.yaml"
    file.write_text(content.replace("WBC", str(BUNDLES / "wbc")))
    assert main(["run", str(file), "--output_dir", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_wrong_data_are_refused_before_any_training(tmp_path, capsys):
    file = write_study(tmp_path / "s.yaml", {"a": {}})
    out = tmp_path / "out"
    assert main(["run", str(file), "--output_dir", str(out), "--dataset_dir", str(tmp_path)]) == 1
    assert f"{tmp_path}: expected a folder 'Dataset 1' that has *.bmp, found s.yaml." in capsys.readouterr().err
    assert main(["run", str(file), "--preset", "large", "--output_dir", str(out)]) == 1
    assert "--preset: expected one of paper, cpu, found 'large'." in capsys.readouterr().err
    assert main(["run", str(file), "--jobs", "0", "--output_dir", str(out)]) == 1
    assert main(["run", str(file), "--seeds", "0", "--output_dir", str(out)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "--jobs: expected a number from 1, found 0.",
        "--seeds: expected a number of seeds from 1, found 0.",
    ]
    assert main(["run", str(file), "--output_dir", str(file)]) == 1
    assert re.match(rf"{file}.*: expected to write there, found '.*'. Choose another", capsys.readouterr().err)
    assert not list(out.glob("*/seed-*"))


def test_one_command_at_a_time(tmp_path, capsys):
    file = write_study(tmp_path / "s.yaml", {"a": TINY})
    out = tmp_path / "out"
    out.mkdir()
    with FileLock(out / ".study.lock"):
        assert main(["run", str(file), "--output_dir", str(out)]) == 1
    assert capsys.readouterr().err.endswith("expected no other command at this study, found one. Wait for it.\n")


def test_a_failure_stays_on_the_page(tiny):
    """Another command for another variant does not hide it, and the page's command covers both."""
    file, out, _ = tiny
    assert main(["run", str(file), "--output_dir", f"{out}/../{out.name}", "--variants", "U-Net"]) == 0
    text = (out / "report.md").read_text()
    assert "Not finished: broken, seed 0, 1: FAILED (" in text
    assert "Command: `python -m monai_iels.study run tiny.yaml --preset cpu --seeds 2`" in text


def test_a_study_that_was_moved_is_reported_from_its_results(tiny, tmp_path, caplog):
    _, out, _ = tiny
    for name in ("study.json", "results.json"):
        shutil.copy(out / name, tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    assert "the runs cannot be read" in caplog.text
    assert (tmp_path / "table.csv").read_text() == (out / "table.csv").read_text()
    for content in ("{", "[]", "{}"):
        (tmp_path / "study.json").unlink(missing_ok=True)
        (tmp_path / "results.json").write_text(content)
        with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 'results.json'}: expected")):
            collect(tmp_path)


def test_pictures_can_be_left_out(tiny, tmp_path):
    _, out, _ = tiny
    folder = tmp_path / "page"
    for arguments, there in ([], True), (["--without_images"], False):
        assert main(["report", str(out), "--output_dir", str(folder), *arguments]) == 0
        assert (folder / "panels.png").exists() == there
        assert ("panels" in (folder / "report.md").read_text()) == there


LIVE, SCRIPT = '=HYPERLINK("http://x")', "<script>alert(1)</script>"
KILL = "__import__('os').kill(__import__('os').getpid(), 9)"


@pytest.fixture(scope="module")
def hostile(server, tmp_path_factory):
    """Run a study on a server with a password, of which one training is killed before it is tracked, and one after."""
    folder = tmp_path_factory.mktemp("hostile")
    short = {**TINY, "epochs": 1}
    variants = {
        LIVE: short,
        SCRIPT: {**short, "loss": f"$lambda pred, label: {KILL} if pred.requires_grad else None"},
        "`a` *b*": {**short, "loss": f"${KILL}"},
    }
    file = write_study(folder / "s.yaml", variants, seeds=1)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_TRACKING")}
    command = [sys.executable, "-m", "monai_iels.study", "run", str(file), "--output_dir", str(folder / "out")]
    with Gate(server, "me", "Xy9@/Zw8") as gate:
        uri = f"http://me:Xy9@/Zw8@{gate.host}"
        command += ["--preset", "cpu", "--jobs", "2", "--tracking_uri", uri]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return folder / "out", done.stdout + done.stderr, gate.host


def test_a_study_s_password_is_used_and_written_nowhere(hostile, server):
    out, log, host = hostile
    assert not files_with(out, "Xy9", "Zw8")
    assert not files_with(server.folder, "Xy9", "Zw8")
    assert "Xy9" not in log
    assert json.loads((out / "study.json").read_text())["tracking_uri"] == f"http://{host}"
    assert Journal(out / "hyperlink-http-x" / "seed-0" / "tracking").status() == "FINISHED"


def test_a_killed_training_is_killed_everywhere(hostile, server):
    out, log, _ = hostile
    about = json.loads((out / "study.json").read_text())
    where = f"tags.`mlflow.parentRunId` = '{about['run_id']}'"
    client = mlflow.MlflowClient(server.uri)
    runs = client.search_runs([client.get_run(about["run_id"]).info.experiment_id], where)
    assert {run.data.tags["study.variant"]: run.info.status for run in runs} == {LIVE: "FINISHED", SCRIPT: "KILLED"}
    page = html.unescape((out / "report.html").read_text())
    for variant in (SCRIPT, "`a` *b*"):
        assert f"{variant}, seed 0: KILLED after" in log
        assert about["ended"][f"{variant}, seed 0"] == "KILLED"
        assert f"Not finished: {variant}, seed 0: KILLED" in page
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
        shown = html.unescape(markdown.render(f"Note: {_plain(text)}"))
        assert shown == f"<p>Note: {text}</p>\n"
        assert html.unescape(markdown.render(f"Note: {_code(text)}")) == f"<p>Note: <code>{text}</code></p>\n"


class Echo:
    """A crew that trains nothing."""

    def train(self, job):
        return job


@pytest.mark.parametrize("backend", ["threading", "loky", "multiprocessing"])
def test_backends(backend):
    """Those of joblib tell each job as it ends, or all at the end, as Ray's does."""
    assert sorted(_outcomes(Echo(), [3, 1, 2], 2, backend)) == [1, 2, 3]


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_every_study_names_what_its_bundle_has(file):
    found = study.read_study(file)
    config = json.loads(compose(found.bundle, BUNDLES / "shared")["configs/train.json"])
    assert found.bundle.name == file.parts[-3]
    study.check_overrides(found, config)


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_every_variant_can_be_built(file):
    found = study.read_study(file)
    for overrides in found.variants.values():
        parser = ConfigParser(json.loads((found.bundle / "configs" / "train.json").read_text()))
        parser.update({**study.presets(found.bundle)["cpu"], **overrides, "device": "cpu"})
        parser["features"] = FEATURES
        if overrides.get("iel_spacing") == 1.0 or overrides.get("iel_steps", 0) > 30:
            with pytest.warns(UserWarning, match="amplifies up to"):
                parser.get_parsed_content("layer")
        for key in ("network", "loss", "optimizer", "train#preprocessing", "validate#postprocessing"):
            assert callable(parser.get_parsed_content(key)) or key == "optimizer"


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


@pytest.mark.parametrize(
    ("key", "message"),
    [("epoch", "preset 'cpu', 'epoch': expected a key"), ("output_dir", "preset 'cpu': expected no 'output_dir'")],
)
def test_a_preset_is_checked_as_a_variant_is(tmp_path, capsys, key, message):
    (tmp_path / "mine" / "configs").mkdir(parents=True)
    shutil.copy(BUNDLES / "wbc" / "configs" / "train.json", tmp_path / "mine" / "configs")
    (tmp_path / "mine" / "presets.yaml").write_text(json.dumps({"cpu": {key: 3}}))
    file = write_study(tmp_path / "study.yaml", {"a": {}}, bundle="mine")
    assert main(["run", str(file), "--preset", "cpu", "--output_dir", str(tmp_path / "out")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_settings_that_variants_change_are_not_claimed():
    variants = {"a": {"epochs": 15, "loss": {}, "seed": 0}, "b": {"epochs": 30, "loss": {}}}
    results = {"settings": {"epochs": 10, "features": [8]}, "variants": variants}
    assert list(_settings(results)) == ["epochs as each variant says", "features [8]", "loss its own"]


def test_the_page_names_every_study():
    page = (BUNDLES.parent / "docs" / "do" / "studies.md").read_text("utf-8")
    assert all(f"`{file.parts[-3]}/studies/{file.name}`" in page for file in STUDIES)


def test_some_variants_keep_the_baseline_of_their_group():
    found = study.read_study(BUNDLES / "wbc" / "studies" / "noisy_labels.yaml")
    some = study.choose(found, ["clean labels / majority filter"])
    assert list(some.variants) == ["clean labels / U-Net", "clean labels / majority filter"]
    with pytest.raises(ValueError, match=r"--variants: expected one of clean labels . U-Net, .* found 'U-Net'"):
        study.choose(found, ["U-Net"])


def test_a_difference_is_paired():
    cases = np.linspace(0, 1, 30)
    baseline = np.stack([cases, cases + 0.1, cases - 0.2])
    mean, (low, high) = difference(baseline + 0.05, baseline)
    assert (mean, low, high) == pytest.approx((0.05, 0.05, 0.05))
    noise = np.random.default_rng(0).normal(0, 0.1, baseline.shape)
    mean, (low, high) = difference(baseline + noise, baseline)
    assert low < 0 < high
    assert high - low == pytest.approx(2 * 1.96 * 0.1 / np.sqrt(noise.size), rel=0.6)


def test_a_table_of_groups_compares_within_them(tmp_path):
    def one(variant, seed, dice):
        cases = {"val_mean_dice": {"a": dice, "b": dice}, "val_roughness": {"a": 0.1, "b": 0.1}}
        cases["val_convexity"] = {"a": 0.9, "b": 0.9}
        metrics = {name: [0.5, dice] for name in ("val_mean_dice", "val_roughness", "val_convexity", "seconds")}
        metrics["epochs"] = [5, 10]
        return {"variant": variant, "seed": seed, "status": "FINISHED", "history": metrics, "cases": cases} | {
            "cases_stopped_early": cases
        }

    scores = {"clean / A": 0.9, "clean / B": 0.8, "noisy / A": 0.5, "noisy / B": 0.7}
    results = {"study": "s", "bundle": "b", "preset": "paper", "synthetic": False, "settings": {}, "seeds": [0, 1]}
    results |= {"variants": {name: {} for name in scores}, "versions": {}}
    results["runs"] = [one(name, seed, dice + seed / 100) for name, dice in scores.items() for seed in (0, 1)]
    gains = {f"{row['group']} / {row['variant']}": row["dice_gain"] for row in table(results)}
    assert gains["clean / B"] == pytest.approx(-0.1)
    assert gains["noisy / B"] == pytest.approx(0.2)
    assert np.isnan(gains["clean / A"])
    page = write_report(results, tmp_path).read_text()
    assert page.index("clean") < page.index("noisy")
    assert collect(tmp_path)["runs"] == results["runs"]
    for entry in results["runs"]:  # a case that is not everywhere, and a number that is none
        entry["history"]["val_convexity_of_truth"] = [float("nan")] * 2
        if entry["variant"] == "clean / B":
            for cases in (entry["cases"], entry["cases_stopped_early"]):
                cases["val_mean_dice"] = {"b": 0.7, "c": 0.1}
    gains = {f"{row['group']} / {row['variant']}": row["dice_gain"] for row in table(results)}
    assert gains["clean / B"] == pytest.approx(0.7 - 0.905)
    write_report(results, tmp_path)
    write_report(collect(tmp_path), tmp_path)


@pytest.mark.parametrize("name", [r"$\frac$", "_hidden", "", "a\nb"])
def test_a_name_is_drawn_as_it_is(name, tmp_path):
    history = {"epochs": [1, 2], "val_mean_dice": [0.1, 0.2], "val_roughness": [0.1, 0.2], "val_convexity": [0.1, 0.2]}
    study_curves({name: {name: [history], "b": [history]}}, tmp_path / "curves.png")
    study_panels([{"image": np.zeros((8, 8)), name: np.zeros((8, 8))}], name, tmp_path / "panels.png")
    assert (tmp_path / "curves.png").exists()


def test_the_file_s_name_is_found_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = Path(os.path.relpath(STUDIES[-1], tmp_path))
    assert study.read_study(relative).bundle.is_dir()
