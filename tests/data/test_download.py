# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Downloads, from a server that can stop half way."""

import dataclasses
import hashlib
import os
import re
import shutil
import signal
import time

import numpy as np
import pytest
from data_sets import files_of_at_most, in_another_process, main, read_wbc, web_page
from PIL import Image

from monai_iels.data import SOURCES


@pytest.mark.parametrize("name", ["drive", "refuge", "cityscapes"])
def test_registering_is_explained_where_a_data_set_cannot_be_downloaded(name, tmp_path, capsys):
    assert main(["download", name, "--root", str(tmp_path / "x")]) == 1
    text = capsys.readouterr().err
    assert "Register at https://" in text
    assert SOURCES[name].layout.splitlines()[0] in text
    assert not (tmp_path / "x").exists()


def test_a_data_set_is_downloaded_once_verified_and_unpacked(known, server, capsys):
    arguments = ["download", "wbc", "--root", str(known), "--url", server.url("master.zip")]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "sha256" in out
    assert "No problem found" in out
    assert [p.name for p in known.iterdir()] == ["segmentation_WBC"]
    assert read_wbc(known)["training"]
    assert main(arguments) == 0
    assert "already exists" in capsys.readouterr().out
    assert server.requests == 1


def test_a_download_that_breaks_off_leaves_nothing(known, server, capsys):
    size = (server.folder / "master.zip").stat().st_size
    server.limit = size // 2
    arguments = ["download", "wbc", "--root", str(known), "--url", server.url("master.zip")]
    assert main(arguments) == 1
    assert f"the download failed ({size // 2} of {size} bytes arrived)" in capsys.readouterr().err
    assert list(known.iterdir()) == []
    server.limit = None
    assert main(arguments) == 0


def test_a_correct_checksum_is_reported(known, server, monkeypatch, capsys):
    digest = hashlib.md5((server.folder / "master.zip").read_bytes()).hexdigest()
    archive = {**SOURCES["wbc"].archive, "checksum": f"md5:{digest}"}
    monkeypatch.setitem(SOURCES, "wbc", dataclasses.replace(SOURCES["wbc"], archive=archive))
    assert main(["download", "wbc", "--root", str(known), "--url", server.url("master.zip")]) == 0
    assert "master.zip: its md5 is correct." in capsys.readouterr().out


def test_an_interrupted_download_leaves_nothing(known, server):
    server.limit, server.hang = (server.folder / "master.zip").stat().st_size // 2, True
    arguments = ["download", "wbc", "--root", str(known), "--url", server.url("master.zip")]
    process = in_another_process(arguments)
    while not server.requests:
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 130
    assert list(known.iterdir()) == []
    server.limit, server.hang = None, False
    assert main(arguments) == 0


def test_a_download_with_other_contents_is_refused(known, server, copy, capsys):
    root = copy("wbc")
    Image.fromarray(np.zeros((48, 48, 3), np.uint8)).save(root / "Dataset 1" / "001.bmp")
    shutil.make_archive(str(server.folder / "changed"), "zip", root)
    assert main(["download", "wbc", "--root", str(known), "--url", server.url("changed.zip")]) == 1
    assert "the sha256 of all labeled images and their masks is" in capsys.readouterr().err
    assert list(known.iterdir()) == []
    assert main(["download", "wbc", "--root", str(known), "--url", server.url("master.zip")]) == 0


def test_a_download_with_a_wrong_checksum_is_refused(server, tmp_path, capsys):
    arguments = ["download", "dsb2018", "--root", str(tmp_path / "d"), "--url", server.url("master.zip")]
    assert main(arguments) == 1
    assert re.search(r"its sha256 is \w{64} instead of 9808\w+\.", capsys.readouterr().err)
    assert list((tmp_path / "d").iterdir()) == []


def test_a_web_page_in_place_of_an_archive_is_fetched_again(known, server, capsys):
    web_page(server.folder / "page.zip")
    arguments = ["download", "wbc", "--root", str(known), "--url"]
    assert main([*arguments, server.url("page.zip")]) == 1
    assert "broken archive" in capsys.readouterr().err
    assert main([*arguments, server.url("master.zip")]) == 0


@pytest.mark.parametrize("url", ["notaurl", "http://a b/x.zip", "file:///no/such.zip"])
def test_an_address_that_cannot_be_opened_is_named(url, known, capsys):
    assert main(["download", "wbc", "--root", str(known), "--url", url]) == 1
    assert capsys.readouterr().err.startswith(f"{url}: the download failed (")


@pytest.mark.parametrize("reason", ["missing", "nobody"])
def test_a_missing_file_or_server_is_named_and_leaves_nothing(reason, known, server, capsys):
    url = server.url("none.zip" if reason == "missing" else "master.zip")
    if reason == "nobody":
        url = "http://127.0.0.1:9/master.zip"
    assert main(["download", "wbc", "--root", str(known), "--url", url]) == 1
    assert capsys.readouterr().err.startswith(f"{url}: the download failed (")
    assert list(known.iterdir()) == []


def test_a_download_to_a_full_disk_names_the_option_for_another_folder(known, server, capsys):
    arguments = ["download", "wbc", "--root", str(known), "--url", server.url("master.zip")]
    with files_of_at_most(2000):
        assert main(arguments) == 1
    assert re.fullmatch(
        r".*segmentation_WBC cannot be written \(file too large\): .* --root\.\n", capsys.readouterr().err
    )
    assert main(arguments) == 0
