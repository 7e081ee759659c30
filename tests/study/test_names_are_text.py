# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Names that look like code stay text, passwords stay secret, and a killed training is killed everywhere."""

import csv
import html
import json

import mlflow
import pytest
from helpers import BUNDLES, FEATURES, corrupt
from programs import Program
from servers import Gate, files_with

from monai_iels.study._report import _as_text
from monai_iels.tracking import Journal

TINY = {"features": FEATURES, "epochs": 1, "image_size": [32, 32], "datalists#count": 10, "datalists#size": 48}
TINY |= {"learning_rate": 0.003, "label_error": corrupt(0.2), "pictures": False}
LIVE, SCRIPT = '=HYPERLINK("http://x")', "<script>alert(1)</script>"
KILL = "__import__('os').kill(__import__('os').getpid(), 9)"
KILL_LATER = f"lambda self, pred, label: {KILL} if pred.requires_grad else None"


@pytest.fixture(scope="module")
def hostile(server, tmp_path_factory):
    """Run a study on a server with a password, of which one training is killed before it is tracked, and one after."""
    folder = tmp_path_factory.mktemp("hostile")
    columns = {
        LIVE: TINY,
        SCRIPT: {**TINY, "loss": f"$type('Loss', (torch.nn.Module,), {{'forward': {KILL_LATER}}})()"},
        "`a` *b*": {**TINY, "loss": f"${KILL}"},
    }
    file = folder / "s.yaml"
    file.write_text(json.dumps({"bundle": str(BUNDLES / "wbc"), "seeds": 1, "columns": columns}))
    command, log = ["study", "run", file, "--output_dir", folder / "out"], folder / "log"
    with Gate(server, "me", "Xy9first@/Zw8second") as gate:
        command += ["--preset", "cpu", "--jobs", "2", "--tracking_uri", f"http://{gate.host}"]
        secrets = {"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "Xy9first@/Zw8second"}
        elsewhere = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}  # goes after the option
        Program("monai_iels", *command, stdout=log, env=secrets | elsewhere).wait()
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
        assert f"Not finished: {variant}, seed 0: KILLED (exit code -9)." in page
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
    assert "| &lt;script&gt;alert(1)&lt;/script&gt; (0 of 1 seeds) |  |  |  |  |  |" in lines
    assert r"| \`a\` \*b\* (0 of 1 seeds) |  |  |  |  |  |" in lines


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
