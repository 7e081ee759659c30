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

"""The pages: code runs, commands are run or say why not, links lead somewhere, messages are true."""

import re
from pathlib import Path

import pytest
import yaml
from monai.bundle import run

from monai_iels.data import SOURCES, checked_datalists
from monai_iels.data.__main__ import main as data_main

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bundles/*/docs/*.md")])
PAGES = [page for page in PAGES if "_build" not in page.parts and page.name not in ("bundles.md", "commands.md")]
BLOCK = re.compile(r"(<!--[^>]*-->\n)?```(python|bash)\n(.*?)```", re.DOTALL)


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(page, language):
    return [(mark or "", code) for mark, kind, code in BLOCK.findall(page.read_text("utf-8")) if kind == language]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=name_of)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, recwarn):
    monkeypatch.chdir(tmp_path)
    names = {}
    for mark, code in blocks(page, "python"):
        if mark:
            assert re.match(r"<!-- not run: \w", mark), mark
        else:
            exec(code, names)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "bash")], ids=name_of)
def test_the_commands_of_a_page_are_run_or_say_why_not(page):
    for mark, code in blocks(page, "bash"):
        assert re.match(r"<!-- not run: \w", mark), f"{page}: expected a reason before\n{code}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http", "#", "mailto:")):
            assert (page.parent / target.split("#")[0]).exists(), f"{page}: {target}"


def test_every_page_is_in_the_table_of_contents():
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    for page in ROOT.glob("docs/**/*.md"):
        place = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
        if "_build" not in page.parts and not place.startswith("results/") and place != "index":
            assert re.search(rf"^{re.escape(place)}$", index, re.MULTILINE), place


def test_the_messages_on_the_page_of_mistakes_are_those_that_come(tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs" / "start" / "mistakes.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as outside:
        run(args_file="bundles/wbc/quickstart.json")
    assert str(outside.value) in text
    with pytest.raises(ValueError, match="expected a folder") as caught:
        checked_datalists("wbc", "nowhere")
    assert str(caught.value).replace(f"{tmp_path}/", "") in text
    SOURCES["wbc"].synthesize("DIR", count=6)
    (tmp_path / "DIR" / "Dataset 1" / "002.png").unlink()
    assert data_main(["check", "wbc", "--root", "DIR"]) == 1
    assert capsys.readouterr().out.splitlines()[0].replace(f"{tmp_path}/", "") in text
    assert "--epoch: expected a key that a config defines, found an unknown one. The nearest is 'epochs'." in text


def test_the_citation_names_the_paper_and_this_version():
    import monai_iels

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == monai_iels.__version__
    assert citation["preferred-citation"]["url"] in (ROOT / "README.md").read_text("utf-8")


def test_pre_commit_checks_what_the_continuous_integration_checks():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    for hook in hooks:
        assert hook["entry"] in script, hook["entry"]
