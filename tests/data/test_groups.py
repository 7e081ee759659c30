# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Patients: all images of one stay in one section."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from data_sets import write_labels
from PIL import Image

from monai_iels.data import paired_datalists


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    """Write 60 pairs of 20 patients, who have one to five images each."""
    folder = tmp_path_factory.mktemp("patients")
    rows = ["file,patient,site"]
    for patient in range(20):
        for number in range(patient % 5 + 1):
            name = f"p{patient:02}_{number}"
            rows.append(f"{name},{patient},{'ab'[patient % 2]}")
            for kind in ("images", "labels"):
                (folder / kind).mkdir(exist_ok=True)
                Image.fromarray(np.zeros((4, 5), np.uint8)).save(folder / kind / f"{name}.png")
    (folder / "patients.csv").write_text("\n".join(rows))
    return folder


def patients_of(cases):
    return {Path(case["image"]).name.split("_")[0] for case in cases}


@pytest.mark.parametrize("how", [{"group": "^(.+)_"}, {"group": "patient", "table": "patients.csv"}])
def test_no_patient_is_in_two_sections(how, patients):
    splits = set()
    for seed in range(30):
        found = paired_datalists(patients, validation=0.2, test=0.1, seed=seed, **how)
        assert list(found) == ["training", "validation", "test"]
        assert len({case["image"] for cases in found.values() for case in cases}) == 60
        assert sum(len(patients_of(cases)) for cases in found.values()) == 20
        assert abs(len(found["validation"]) - 12) <= 2  # half of the largest patient
        assert abs(len(found["test"]) - 6) <= 2
        assert found == paired_datalists(patients, validation=0.2, test=0.1, seed=seed, **how)
        splits.add(str(found))
    assert len(splits) == 30


def test_without_a_group_patients_are_divided_and_a_warning_says_so(patients, caplog):
    found = paired_datalists(patients, validation=0.2)
    assert patients_of(found["training"]) & patients_of(found["validation"])
    (warning,) = caplog.messages
    assert warning.startswith("5 images whose names begin with p04 look like images of one patient")
    proposed = re.search(r"group: '(.*?)'\.", warning)[1]
    together = paired_datalists(patients, validation=0.2, group=proposed)
    assert not patients_of(together["training"]) & patients_of(together["validation"])
    assert paired_datalists(patients, validation=0.2, group="(.+)") == found
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("names", ["img_{}", "{}", "case-{}", "scan 2024 {}"])
def test_names_that_only_count_cause_no_warning(names, tmp_path, caplog):
    write_labels(tmp_path, {f"{names.format(number)}.png": [255] for number in range(8)})
    assert caplog.messages == []


def test_a_few_large_patients_still_have_a_validation_section(tmp_path):
    write_labels(tmp_path, {f"{patient}_{number}.png": [255] for patient in "abc" for number in range(7)})
    found = paired_datalists(tmp_path, validation=0.1, group="(.)_")
    assert {name: len(cases) for name, cases in found.items()} == {"training": 14, "validation": 7}


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        (
            {"group": r"(x\d+)"},
            r"group '\(x.* does not match 60 of 60 images: p00_0.png, .*, \.\.\.; correct it in .*: '\(\.\+\)' if",
        ),
        ({"group": "p0(.)_"}, "does not match 30 of 60 images"),
        ({"group": "(p)"}, "puts all 60 images into one group, 'p'"),
        ({"group": "p.._"}, r"expression with parentheses around the patient, such as '\^\(.\+\)_', got 'p\.\._'"),
        ({"group": "(p"}, r"must be a regular expression with .*, got '\(p' \(missing \)"),
        (
            {"group": "age", "table": "patients.csv"},
            r"must be a column of .* \(file, patient, site\), got 'age'",
        ),
        ({"group": "patient", "table": "none.csv"}, r"none\.csv: cannot be opened"),
        (
            {"table": "patients.csv"},
            "table must come with group or with section, .*, got table patients.csv, group None and section None",
        ),
        ({"section": "site"}, "and section with table, got table None, group None and section site"),
        (
            {"section": "site", "group": "(.+)_", "table": "patients.csv"},
            r"got table patients.csv, group \(\.\+\)_ and section site",
        ),
        ({"section": "age", "table": "patients.csv"}, "section must be a column of .*, got 'age'"),
        (
            {"section": "site", "table": "patients.csv"},
            "section of p00_0.png in .* must be one of training, validation, test, got 'a'",
        ),
    ],
)
def test_a_group_that_cannot_be_found_is_explained(how, sentence, patients):
    with pytest.raises(ValueError, match=sentence) as caught:
        paired_datalists(patients, **how)
    assert len(str(caught.value).splitlines()) == 1


def test_a_case_that_the_table_lacks_is_named(patients, tmp_path):
    shutil.copytree(patients, tmp_path / "copy")
    table = tmp_path / "copy" / "patients.csv"
    table.write_text(table.read_text().replace("p07_1,", "p99_1,").replace("p08_0,", "p08_0.png,"))
    with pytest.raises(ValueError, match=r"patients.csv for 1 of 60 images: p07_1.png; add it to the table"):
        paired_datalists(tmp_path / "copy", group="patient", table="patients.csv")


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_table_may_have_semicolons_or_tabs(separator, patients, tmp_path):
    shutil.copytree(patients, tmp_path / "copy")
    table = tmp_path / "copy" / "patients.csv"
    expected = paired_datalists(tmp_path / "copy", group="patient", table="patients.csv")
    table.write_text("\ufeff" + table.read_text().replace(",", separator), encoding="utf-8")
    assert paired_datalists(tmp_path / "copy", group="patient", table="patients.csv") == expected


def test_a_column_may_name_the_section_of_each_image(patients, tmp_path):
    shutil.copytree(patients, tmp_path / "copy")
    names = {0: "training", 1: "validation", 2: "test"}
    rows = [f"{file.name},{names[int(file.stem[1:3]) % 3]}" for file in sorted((patients / "images").iterdir())]
    table = tmp_path / "copy" / "split.csv"
    table.write_text("\n".join(["file,section", *rows]))
    found = paired_datalists(tmp_path / "copy", section="section", table="split.csv", seed=3)
    assert list(found) == ["training", "validation", "test"]
    for number, name in names.items():
        expected = [file.name for file in sorted((patients / "images").iterdir()) if int(file.stem[1:3]) % 3 == number]
        assert [Path(case["image"]).name for case in found[name]] == expected
    table.write_text(table.read_text().replace("validation", "training"))
    with pytest.raises(ValueError, match="none are left for validation"):
        paired_datalists(tmp_path / "copy", section="section", table="split.csv")
