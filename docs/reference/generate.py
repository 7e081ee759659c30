# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Write the pages about the bundles' keys and the command line, and the lists of public names, from their sources."""

import argparse
import os
import re
from pathlib import Path

import yaml

from monai_iels.cli import make_parser

HERE = Path(__file__).parent
BUNDLES = HERE.parents[1] / "bundles"
STUB = HERE.parents[1] / "monai_iels" / "__init__.pyi"
ROOMS = {  # whose public names each page of the core has
    "evolutions": ["evolutions"],
    "layers": ["layers", "networks", "warmup"],
    "losses_metrics": ["losses", "robust_losses", "metrics"],
    "transforms": ["transforms"],
}


def main() -> None:
    """Write the pages that changed."""
    pages = {f"python/{page}.md": with_names(page) for page in ROOMS}
    for name, text in {**pages, "bundles.md": bundles(), "commands.md": commands()}.items():
        file = HERE / name
        if not file.exists() or file.read_text("utf-8") != text:
            file.write_text(text, encoding="utf-8")


def with_names(page: str) -> str:
    """Return a page of the core with the public names of its rooms, as the stub lists them."""
    found = re.findall(r"^from monai_iels\.(\w+)\S* import (\w+)", STUB.read_text("utf-8"), re.MULTILINE)
    names = [name for room in ROOMS[page] for name in sorted(name for other, name in found if other == room)]
    classes = [f".. autoclass:: {name}\n   :members:\n   :special-members: __call__\n" for name in names]
    text = (HERE / "python" / f"{page}.md").read_text("utf-8")
    return re.sub(r"(?<=currentmodule:: monai_iels\n\n).*?(?=```)", "\n".join(classes), text, flags=re.DOTALL)


def bundles() -> str:
    """Return the page of keys: the meaning of each, its default, and its value in each bundle."""
    names = sorted(file.parent.name for file in BUNDLES.glob("*/dataset.yaml"))
    changes = {name: yaml.safe_load((BUNDLES / name / "dataset.yaml").read_text("utf-8")) for name in names}
    lines = [
        "# Keys of the bundles\n",
        "Override any key on the command line with `--KEY VALUE`. To unset one, type `null` (only with "
        "`--workflow_name`). Keys that only combine others are left out. `resume` and the like are "
        "[parameters of the workflow](python/bundle.md).\n",
    ]
    for config in ("train", "evaluate", "inference"):
        text = (BUNDLES / "shared" / f"{config}.yaml").read_text("utf-8")
        content = yaml.safe_load(text)
        meanings = dict(re.findall(r"^(\w+):.*?  # (.+)$", text, re.MULTILINE))
        changed = {name: {**changes[name], **changes[name].get(config, {})} for name in names}  # inference has its own
        lines += [
            f"## {config}\n",
            "| key | meaning | default | other defaults |",
            "|---|---|---|---|",
        ]
        for key, value in content.items():
            if key in ("imports", "initialize", "run", "finalize") or key not in meanings:
                continue
            own = {name: shown(changed[name][key]) for name in names if key in changed[name]}
            others = [f"{name} {text}" for name, text in own.items() if text != shown(value)]
            lines.append(f"| `{key}` | {meanings[key]} | {shown(value)} | {', '.join(others)} |")
        lines.append("")
    return "\n".join(lines)


def shown(value: object) -> str:
    """Return the text of a cell; of a component only its name, of an expression only that it is one."""
    if isinstance(value, dict):
        return f"`{value['_target_']}`" if "_target_" in value else "*several*" if value else "`{}`"
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return "*components*"
    if value is None:
        return "*not set*"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return "*computed*" if text.startswith("$") else "*long*" if len(text) > 60 else f"`{text}`".replace("|", "\\|")


def commands() -> str:
    """Return the page of commands: what each prints with ``--help``."""
    os.environ.update(COLUMNS="110", NO_COLOR="1")
    lines = [
        "# Command line\n",
        "`python -m monai_iels` is the same as `monai-iels`. `--version` prints the version, `--help` this page.\n",
    ]
    for room, parser in subparsers(make_parser()).items():
        lines += [f"## monai-iels {room}\n", f"{parser.description}\n"]
        for command in subparsers(parser).values() or [parser]:
            text = re.sub(r"\n +-h, --help .*| \[-h\]", "", command.format_help())  # which every command has
            lines.append(f"```text\n{text.strip()}\n```\n")
    return "\n".join(lines)


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a parser's commands, by name."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found.update(action.choices)
    return found


if __name__ == "__main__":
    main()
