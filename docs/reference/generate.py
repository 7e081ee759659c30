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

"""Write the reference of the bundles' keys and of the command lines, from the sources."""

import contextlib
import importlib
import io
import os
import re
from pathlib import Path

import yaml

HERE = Path(__file__).parent
BUNDLES = HERE.parents[1] / "bundles"
COMMANDS = {
    "monai_iels.data.__main__": ("download", "check", "synthesize"),
    "monai_iels.bundle.__main__": (),
    "monai_iels.handlers.__main__": (),
    "monai_iels.registry": ("register", "list", "promote", "export"),
    "monai_iels.study.__main__": ("run", "report"),
}


def main() -> None:
    """Write both pages, where they changed."""
    for name, text in (("bundles.md", bundles()), ("commands.md", commands())):
        file = HERE / name
        if not file.exists() or file.read_text("utf-8") != text:
            file.write_text(text, encoding="utf-8")


def bundles() -> str:
    """Return the keys of a training and of an inference: what each is by default, and in each bundle."""
    names = sorted(file.parent.name for file in BUNDLES.glob("*/dataset.yaml"))
    changes = {name: yaml.safe_load((BUNDLES / name / "dataset.yaml").read_text("utf-8")) for name in names}
    lines = [
        "# Keys of the bundles\n",
        "Each may be overridden on the command line, as `--KEY VALUE`. Keys without a meaning put others together.\n",
    ]
    for config in ("train", "evaluate", "inference", "multi_gpu_train"):
        text = (BUNDLES / "shared" / f"{config}.yaml").read_text("utf-8")
        content = yaml.safe_load(text)
        meanings = dict(re.findall(r"^(\w+):.*?  # (.+)$", text, re.MULTILINE))
        lines += [
            f"## {config}\n",
            f"| key | meaning | default | {' | '.join(names)} |",
            "|---" * (len(names) + 3) + "|",
        ]
        for key, value in content.items():
            if key in ("imports", "initialize", "known_keys", "run", "finalize"):
                continue
            own = [shown(changes[name][key]) if key in changes[name] else "" for name in names]
            lines.append(f"| `{key}` | {meanings.get(key, '')} | {shown(value)} | {' | '.join(own)} |")
        lines.append("")
    return "\n".join(lines)


def shown(value: object) -> str:
    """Return a value as a cell; of components and expressions only what they are."""
    if isinstance(value, dict):
        return f"`{value['_target_']}`" if "_target_" in value else "*several*" if value else "`{}`"
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return "*components*"
    text = str(value)
    return "*computed*" if text.startswith("$") else "*long*" if len(text) > 60 else f"`{text}`".replace("|", "\\|")


def commands() -> str:
    """Return what each command says with ``--help``."""
    lines = ["# Command lines\n"]
    os.environ.update(COLUMNS="110", NO_COLOR="1")
    for module, names in COMMANDS.items():
        lines.append(f"## python -m {module.removesuffix('.__main__')}\n")
        for name in names or ("",):
            with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
                importlib.import_module(module).main([*([name] if name else []), "--help"])
            lines.append(f"```text\n{text.getvalue().strip()}\n```\n")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
