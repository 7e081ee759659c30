# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The pages: code runs, commands exist and are run or say why not, links lead somewhere, messages are real."""

import importlib
import json
import re
import shlex
from pathlib import Path

import itk
import nibabel
import numpy as np
import pytest
import yaml
from dicom import write_series
from monai.bundle import run
from monai.data import ITKReader
from PIL import Image

import monai_iels
from monai_iels.cli import main, make_parser
from monai_iels.data import SOURCES, check_source, checked_datalists, read_file
from monai_iels.runs import RunError

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bundles/*/docs/*.md")])
PAGES = [page for page in PAGES if "_build" not in page.parts and page.name not in ("bundles.md", "commands.md")]
BLOCK = re.compile(r"(<!--[^>]*-->\n)?```(python|bash)\n(.*?)```", re.DOTALL)


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(page, language):
    return [(mark or "", code) for mark, kind, code in BLOCK.findall(page.read_text("utf-8")) if kind == language]


CONVERSIONS = ROOT / "docs" / "do" / "files.md"  # needs files, and has a test of its own


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python") and p != CONVERSIONS], ids=name_of)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, recwarn):
    monkeypatch.chdir(tmp_path)
    names = {}
    for mark, code in blocks(page, "python"):
        if mark:
            assert re.match(r"<!-- not run: \w", mark), mark
        else:
            exec(code, names)


def test_the_page_of_other_files_converts_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    label = np.repeat(np.arange(3, dtype=np.uint8), 4)[None].repeat(6, 0)  # three classes side by side
    folders = ("color_labels", "masks/b", "images_16_bit", "series", "channel_1", "channel_2", "channel_3", "t1", "t2")
    for folder in folders:
        Path(folder).mkdir(parents=True)
    Image.fromarray(np.array([[0, 0, 0], [255, 0, 0], [0, 255, 0]], np.uint8)[label]).save("color_labels/a.png")
    for number in (1, 2):
        Image.fromarray(255 * (label == number).astype(np.uint8)).save(f"masks/b/{number}.png")
    Image.fromarray(label.astype(np.uint16) * 1500).save("images_16_bit/c.png")
    slices = np.arange(4 * 5 * 6, dtype=np.int16).reshape(4, 5, 6)
    write_series(itk.image_from_array(slices), Path("series/d"))
    for number in (1, 2, 3):
        Image.fromarray(label + np.uint8(number)).save(f"channel_{number}/e.png")
    affine = np.array([[0, -1.0, 0, 5], [2, 0, 0, -7], [0, 0, 3, 9], [0, 0, 0, 1]])
    for number in (1, 2):
        nibabel.save(nibabel.Nifti1Image(slices.T * np.float32(number), affine), f"t{number}/f.nii.gz")
    for _, code in blocks(CONVERSIONS, "python"):
        exec(code, {})
    read = {file.stem: np.array(Image.open(file)) for file in Path("DIR").glob("*/*.png")}
    np.testing.assert_array_equal(read["a"], label)
    np.testing.assert_array_equal(read["b"], 255 * (label > 0))
    np.testing.assert_array_equal(read["c"], np.array([0, 123, 255])[label])
    np.testing.assert_array_equal(read["e"], label[..., None] + [1, 2, 3])
    np.testing.assert_array_equal(nibabel.load("DIR/images/d.nii.gz").get_fdata(), slices.T)
    joined = read_file("DIR/images/f.mha", ITKReader())
    np.testing.assert_array_equal(joined, np.stack([slices.T, 2 * slices.T]))
    np.testing.assert_allclose(joined.affine, affine)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "bash")], ids=name_of)
def test_the_commands_of_a_page_are_run_or_say_why_not(page):
    for mark, code in blocks(page, "bash"):
        assert re.match(r"<!-- not run: \w", mark), f"{page}: no reason before\n{code}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http", "#", "mailto:")):
            assert (page.parent / target.split("#")[0]).exists(), f"{page}: {target}"


@pytest.mark.parametrize("file", sorted(ROOT.glob("docs/notebooks/*.ipynb")), ids=name_of)
def test_a_notebook_is_stored_without_outputs(file):
    """The build of the pages runs the notebooks and stops at an error."""
    cells = json.loads(file.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    assert "assert " in "".join(line for cell in code for line in cell["source"])  # a result that must come out


def mistakes():
    """Return the commands on the page of error messages, and the message of each."""
    text = (ROOT / "docs" / "start" / "faq.md").read_text("utf-8")
    pairs = re.findall(r"```bash\n(.*?)\n```\n\n```text\n(.*?)\n```", text, re.DOTALL)
    assert len(pairs) == text.count("```bash")
    return dict(pairs)


TRAININGS = [command for command in mistakes() if "monai_iels.Training" in command and "--dataset_dir" not in command]


@pytest.mark.parametrize("command", TRAININGS)
def test_a_training_refuses_a_mistake_with_the_sentence_of_the_page(command, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = shlex.split(command.removeprefix("python -m monai.bundle run "))
    options = dict(zip([word.removeprefix("--") for word in words[::2]], words[1::2], strict=True))
    with pytest.raises(RunError) as refused:
        run(**{**options, "output_dir": str(tmp_path / "OUT")})
    assert str(refused.value) == mistakes()[command]
    assert not (tmp_path / "OUT").exists()


def test_the_page_of_mistakes_has_the_messages_about_files(tmp_path, monkeypatch, capsys):
    messages = list(mistakes().values())
    monkeypatch.chdir(tmp_path)
    assert main(["study", "run", "bundles/wbc/studies/quickstart.yaml"]) == 1
    assert capsys.readouterr().err.strip() in messages
    with pytest.raises(ValueError, match="nowhere") as caught:
        checked_datalists("wbc", "nowhere")
    assert str(caught.value).replace(f"{tmp_path}/", "") in messages
    SOURCES["wbc"].synthesize("DIR", count=6)
    (tmp_path / "DIR" / "Dataset 1" / "002.png").unlink()
    report = str(check_source(SOURCES["wbc"], "DIR"))
    assert report.splitlines()[0].replace(f"{tmp_path}/", "") in messages


def our_commands(page):
    """Return what follows ``monai-iels`` in the commands of a page, in blocks and in sentences."""
    text = page.read_text("utf-8")
    lines = [line.split("#")[0] for _, code in blocks(page, "bash") for line in code.splitlines()]
    inline = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    commands = [shlex.split(code) for code in (*lines, *inline) if code.startswith("monai-iels ")]
    return [words[1:] for words in commands]


@pytest.mark.parametrize("page", [p for p in PAGES if our_commands(p) and p.name != "CHANGELOG.md"], ids=name_of)
def test_the_one_command_takes_what_the_pages_say(page):
    samples = {"NAME": "wbc", "N": "6", "S": "0"}
    for words in our_commands(page):
        if words == ["--version"]:
            continue
        options = make_parser().parse_args([samples.get(word, word) for word in words])
        assert callable(options.run), words


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_has_a_command_that_is_gone(page):
    if page.name not in ("CHANGELOG.md", "changelog.md", "report.md"):
        assert not re.search(r"python -m monai_iels\.\w", page.read_text("utf-8"))


REFERENCE = "".join(page.read_text("utf-8") for page in sorted(ROOT.glob("docs/reference/python/*.md")))


@pytest.mark.parametrize("name", re.findall(r"automodule:: (\S+)", REFERENCE))
def test_the_reference_names_modules_with_documented_names(name):
    module = importlib.import_module(name)
    own = [key for key, value in vars(module).items() if getattr(value, "__module__", "").startswith(name)]
    names = [key for key in own if key[0] != "_"]
    assert names
    assert all(getattr(module, key).__doc__ for key in names)  # Sphinx documents only these


def test_the_reference_has_every_public_name():
    names = ("handlers", "tracking", "data", "images", "runs", "bundles", "advice", "study", "registry", "lightning")
    rooms = {f"monai_iels.{name}" for name in names}
    assert rooms <= set(re.findall(r"automodule:: (\S+)", REFERENCE))
    assert set(monai_iels.__all__) == set(re.findall(r"autoclass:: (\w+)$", REFERENCE, re.MULTILINE))
    assert all(getattr(monai_iels, name).__doc__ for name in monai_iels.__all__)


def test_the_citation_names_the_paper_and_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == monai_iels.__version__
    assert citation["preferred-citation"]["url"] in (ROOT / "README.md").read_text("utf-8")


def test_the_readme_has_two_commands_and_the_continuous_integration_runs_the_tests_with_one():
    section = (ROOT / "README.md").read_text("utf-8").split("## Two commands")[1].split("\n## ")[0]
    quickstart, tests = re.findall(r"```bash\n(.+)\n```", section)
    study = Path(quickstart.split()[-1])
    assert quickstart.split("&&")[-1].strip() == f".venv/bin/monai-iels study run {study}"
    assert (ROOT / study).is_file()
    pattern = re.search(r"grep -E '(.+)' README.md", (ROOT / ".ci" / "run").read_text("utf-8"))[1]
    assert re.findall(pattern, (ROOT / "README.md").read_text("utf-8"), re.MULTILINE) == [tests]


def test_pre_commit_checks_what_the_continuous_integration_checks():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    for hook in hooks:
        assert hook["entry"] in script, hook["entry"]
