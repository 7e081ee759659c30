# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The journal on disk: what is read, what goes on, and what a journal from elsewhere may not do."""

import json
import os
import time
from dataclasses import replace
from types import SimpleNamespace

import mlflow
import pytest
from helpers import new_database
from servers import runs_of
from tracking.journals import new_journal, replay

from monai_iels.handlers import Tracking, TrainingStopped
from monai_iels.tracking import DeliveryThread, Journal, RunDescription, deliver


def test_a_torn_last_line_of_a_journal_is_no_entry(tmp_path):
    journal = Journal(tmp_path)
    journal.begin(key="k", tracking_uri="", experiment="e", name="n")
    journal.append("metrics", step=1, values={"a": 1.0})
    with journal.file.open("a") as stream:
        stream.write('{"kind": "metr')
    assert [entry.kind for entry in journal.entries()] == ["open", "metrics"]
    journal.append("resumed")
    assert [entry.kind for entry in journal.entries()] == ["open", "metrics", "resumed"]


def test_only_what_was_appended_is_read(tmp_path):
    """A line that was read is not read again, also if its bytes change."""
    journal = new_journal(tmp_path, "http://127.0.0.1:9")
    journal.append("metrics", step=1, values={"a": 1.0})
    before = journal.entries()
    with journal.file.open("r+b") as stream:
        stream.write(b"x" * 20)
    journal.append("metrics", step=2, values={"a": 2.0})
    assert [entry.step for entry in journal.entries()[1:]] == [1, 2]
    assert journal.entries()[:2] == before
    with pytest.raises(ValueError, match="line 1 must be an entry"):
        Journal(tmp_path).entries()


def test_what_another_process_appends_is_read(tmp_path):
    mine = new_journal(tmp_path, "http://127.0.0.1:9")
    assert len(mine.entries()) == 1
    Journal(tmp_path).append("metrics", step=1, values={"a": 1.0})
    assert [entry.kind for entry in mine.entries()] == ["open", "metrics"]


def test_a_journal_that_begins_anew_is_read_anew(tmp_path):
    journal = new_journal(tmp_path / "tracking", "http://127.0.0.1:9", "first")
    journal.append("metrics", step=1, values={"a": 1.0})
    assert len(journal.entries()) == 2
    os.replace(tmp_path / "tracking", tmp_path / "old")
    assert journal.entries() == []
    assert journal.begin(tracking_uri="", experiment="an experiment with a much longer name", name="n" * 300)
    assert [entry.experiment for entry in journal.entries()] == ["an experiment with a much longer name"]


def test_a_run_ends_and_goes_on(tmp_path):
    journal = new_journal(tmp_path, "http://127.0.0.1:9")
    assert not journal.begin(tracking_uri="", experiment="another", name="another")
    assert [entry.kind for entry in journal.entries()] == ["open"]
    assert journal.status() is None
    journal.append("status", status="KILLED")
    assert journal.status() == "KILLED"
    assert journal.status(since=time.time() + 60) is None
    journal.append("resumed")
    assert journal.status() is None
    journal.append("status", status="FINISHED")
    assert journal.status() == "FINISHED"


def test_a_resumed_run_records_what_is_new(tmp_path):
    """Metrics that were recorded before are not recorded again, and only settings that changed become tags."""
    uri = new_database(tmp_path)
    report, engine = SimpleNamespace(metrics={}), SimpleNamespace(state=SimpleNamespace(epoch=0))

    def track(settings, resume):
        about, engine.state.epoch = RunDescription(settings, {"seed": "a tag"}), 0
        tracking = Tracking(str(tmp_path), report, uri, experiment_name="e", description=about, resume=resume)
        tracking.open(engine)
        return tracking

    for resume, epochs in ((False, 2), (True, 3), (True, 2)):
        tracking = track({"epochs": epochs, "seed": 0}, resume)
        for epoch in range(1, epochs + 1):
            engine.state.epoch, report.metrics = epoch, {"a": epoch}
            tracking.record(engine)
        if resume:
            tracking.close(engine)
        else:
            with pytest.raises(TrainingStopped):
                tracking.fail(engine, TrainingStopped("why"))
        tracking.close(engine)  # it has ended already
    entries = tracking.journal.entries()
    assert [entry.step for entry in entries if entry.kind == "metrics"] == [1, 2, 3]
    tags = [entry.values for entry in entries if entry.kind == "tags"]
    assert tags[0] == {"seed": "a tag"}
    assert tags[1] == {"stopped": "why"}
    assert tags[2:] == [{"stopped": "", "resumed.epochs": "3"}, {"stopped": "", "resumed.epochs": "2"}]
    assert tracking.journal.tags_and_parameters() == {"epochs": "2", "seed": "0", "stopped": ""}
    (found,) = runs_of(uri, "e")
    assert found.info.status == "FINISHED"
    assert found.data.tags["resumed.epochs"] == "2"
    track({}, resume=False).close(engine)
    assert len(list(tmp_path.glob("tracking-*"))) == 1  # the earlier journal stays


@pytest.mark.parametrize(
    "entry",
    [
        {"file": "../../id_rsa"},
        {"file": "ABSOLUTE"},
        {"file": ".."},
        {"file": "..\\id_rsa"},
        {"file": "link"},
        {"file": "0-a.txt", "name": "../a.txt"},
        {"file": "0-a.txt", "place": "../elsewhere"},
        {"file": "0-a.txt", "place": "/elsewhere"},
    ],
    ids=str,
)
def test_a_journal_leads_to_no_file_outside_its_folder(entry, server, tmp_path):
    """It is neither sent nor deleted, and the rest of the journal is delivered."""
    secret = tmp_path / "id_rsa"
    secret.write_text("private")
    journal = new_journal(tmp_path / "out" / "tracking", server.uri, "from elsewhere")
    (journal.folder / "files" / "link").symlink_to(secret)
    (journal.folder / "files" / "0-a.txt").write_text("mine")
    entry = {"name": "a.txt", "place": "", **entry, "file": entry["file"].replace("ABSOLUTE", str(secret))}
    journal.append("artifact", **entry)
    journal.append("metrics", step=1, values={"a": 1.0})
    assert replay(str(tmp_path)) == 0
    run_id = journal.progress().run_id
    client = mlflow.MlflowClient(server.uri)
    assert client.get_run(run_id).data.metrics == {"a": 1.0}
    assert client.list_artifacts(run_id) == []
    assert secret.read_text() == "private"
    assert (journal.folder / "files" / "0-a.txt").read_text() == "mine"
    refused = json.loads((journal.folder / "refused.jsonl").read_text())
    assert " must be a " in refused.pop("reason")
    assert refused.items() >= entry.items()


@pytest.mark.parametrize("name", ["files", "refused.jsonl", "delivered", ".delivery.lock"])
def test_a_journal_with_links_is_refused(name, tmp_path, capsys):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "id_rsa").write_text("private")
    journal = new_journal(tmp_path / "tracking", "http://127.0.0.1:9")
    (journal.folder / "files").rmdir()
    (journal.folder / name).symlink_to(tmp_path / "precious")
    journal.append("artifact", file="id_rsa", name="id_rsa", place="")
    assert replay(str(tmp_path)) == 1
    assert f"{journal.folder / name} is a link" in capsys.readouterr().err
    assert (tmp_path / "precious" / "id_rsa").read_text() == "private"


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "{}",
        '{"kind": "data", "time": 1, "cases": "9"}',
        '{"kind": "shell", "time": 1}',
        '{"kind": "params", "time": 1}',
    ],
)
def test_a_file_that_is_no_journal_is_told(line, tmp_path, capsys):
    journal = new_journal(tmp_path / "tracking", "http://127.0.0.1:9")
    with journal.file.open("a") as stream:
        stream.write(f"{line}\n")
    assert replay(str(tmp_path)) == 1
    sentence = f"{journal.file}, line 2 must be an entry of a training's journal, got '{line}'\n"
    assert capsys.readouterr().err == sentence


def test_a_full_disk_at_the_start_costs_the_run_s_tracking_alone(tmp_path, capsys):
    """The first entry could not be written, the next ones could."""
    journal = Journal(tmp_path / "tracking")
    journal.folder.mkdir()
    journal.append("metrics", step=1, values={"a": 1.0})
    delivery = DeliveryThread(journal)
    delivery.start()
    assert not delivery.finish(patience=0.5)
    (journal.folder / "delivered").write_text('{"count": "x"}')
    assert replay(str(tmp_path)) == 1
    assert f"{journal.file} must begin with a run, got 'metrics'" in capsys.readouterr().err


def test_a_mark_from_elsewhere_leads_to_no_other_run(server, tmp_path):
    """A run is written to only if it is this journal's; one that is not there any more is made anew."""
    client = mlflow.MlflowClient(server.uri)
    other = client.create_run("0").info.run_id
    journal = new_journal(tmp_path, server.uri)
    journal.append("metrics", step=1, values={"a": 1.0})
    for run_id in (other, "0" * 32):
        journal.save_progress(replace(journal.progress(), arrived={0}, run_id=run_id))
        mine = deliver(journal)
        assert mine not in (other, "0" * 32)
        assert client.get_run(mine).data.metrics == {"a": 1.0}
    assert client.get_run(other).data.metrics == {}
