# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What the package shows: its public names, and nothing that could be taken for a component of MONAI's."""

import ast
import configparser
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

import monai.bundle
import pytest
from packaging.requirements import Requirement

import monai_iels

MODULES = [m.name for m in pkgutil.walk_packages(monai_iels.__path__, "monai_iels.") if "__main__" not in m.name]
if importlib.util.find_spec("nnunetv2") is None:  # .ci/nnunet has it
    MODULES = [name for name in MODULES if not name.startswith("monai_iels.nnunet")]
PUBLIC = [name for name in MODULES if "._" not in name]


def test_every_public_name_is_documented():
    """The stub is the only list of them: the package and the pages of the reference are built from it."""
    assert "InverseEvolutionLayer" in monai_iels.__all__
    for name in monai_iels.__all__:
        assert inspect.getdoc(getattr(monai_iels, name))


ROOMS = "settings _terminal _files _yaml drawings torchvision_operators"
ROOMS = f"{ROOMS} grid operators evolutions layers warmup networks losses robust_losses metrics transforms"
ROOMS = f"{ROOMS} street_networks images prediction measures run_folder pictures tracking handlers"
ROOMS = f"{ROOMS} data registry runs bundles study advice lightning nnunet cli __main__".split()


def imports_of(file):
    """Yield the rooms that a file imports from."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if names == ["monai_iels"]:
            names = [f"monai_iels.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith("monai_iels."):
                yield name.split(".")[1]


def test_imports_flow_downward_only():
    home = Path(monai_iels.__file__).parent
    files = [file for file in home.rglob("*.py") if file != home / "__init__.py"]
    assert {file.relative_to(home).parts[0].removesuffix(".py") for file in files} == set(ROOMS)
    for file in files:
        room = ROOMS.index(file.relative_to(home).parts[0].removesuffix(".py"))
        assert not [other for other in imports_of(file) if ROOMS.index(other) > room], file


def test_rooms_import_no_private_modules_of_each_other():
    """No room imports a private module of another room; at the top level there are few that all rooms share."""
    home = Path(monai_iels.__file__).parent
    for file in home.rglob("*.py"):
        own = file.relative_to(home).parts[0]
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            path = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
            if path[:1] == ["monai_iels"] and path[1:2] not in ([], [own]):
                assert not [part for part in path[2:] if part.startswith("_")], file
                assert not [alias.name for alias in node.names if alias.name.startswith("_")], file
    assert len([file for file in home.glob("_*.py") if not file.name.startswith("__")]) <= 3


def test_one_module_beside_the_registry_imports_mlflow():
    """Also inside functions: another tracker is another module like it."""
    home, users = Path(monai_iels.__file__).parent, set()
    for file in home.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            users |= {file.relative_to(home).as_posix() for name in names if name.split(".")[0] == "mlflow"}
    assert {user for user in users if not user.startswith("registry/")} == {"tracking/_mlflow.py"}


def test_the_drawings_import_nothing_of_ours_and_only_the_data_import_them():
    home = Path(monai_iels.__file__).parent
    assert {room for file in (home / "drawings").glob("*.py") for room in imports_of(file)} == {"drawings"}
    users = {file.parent for file in home.rglob("*.py") if "drawings" in imports_of(file)}
    assert users == {home / "data", home / "drawings"}


def test_public_names_are_listed_once():
    """What a room's face imports is what it offers; only names that are loaded later need a list."""
    listed = [name for name in MODULES if hasattr(importlib.import_module(name), "__all__")]
    assert [name for name in listed if "nnunet" not in name] == ["monai_iels.evolutions"]


def test_no_name_is_one_of_monai_s():
    locator = monai.bundle.ComponentLocator(excludes=["monai_iels"])
    assert locator.get_component_module_name("BasicUNet")
    theirs = set(locator._components_table)
    for name in MODULES:
        module = importlib.import_module(name)
        ours = {
            key
            for key, value in vars(module).items()
            if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == name
        }
        assert not {key for key in ours & theirs if not key.startswith("_")}


def test_a_bundle_finds_the_components():
    config = {
        "net": {
            "_target_": "monai_iels.IELNet",
            "network": {"_target_": "torch.nn.Identity"},
            "layer": {
                "_target_": "monai_iels.InverseEvolutionLayer",
                "evolution": {"_target_": "monai_iels.HeatDiffusion", "spacing": [2, 2]},
                "dt": 0.1,
                "steps": 20,
            },
        }
    }
    net = monai.bundle.ConfigParser(config).get_parsed_content("net")
    assert net.layer.evolution == monai_iels.HeatDiffusion((2.0, 2.0))


CORE = ("torch", "monai", "numpy", "scipy")
OWN_LOOP = """
import sys
sys.path += sys.argv[1:]
import torch, monai_iels
from monai.networks.nets import BasicUNet
layer = monai_iels.InverseEvolutionLayer(monai_iels.HeatDiffusion(spacing=2.0), dt=0.1, steps=20)
net = monai_iels.IELNet(BasicUNet(2, 1, 2, features=(4, 4, 4, 4, 4, 4)), layer)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
label = monai_iels.CorruptLabel(2)(torch.zeros(1, 32, 32)).long()
torch.nn.functional.cross_entropy(net(torch.rand(1, 1, 32, 32)), label).backward()
optimizer.step()
monai_iels.RoughnessMetric()(torch.nn.functional.one_hot(label[:, :16], 2).movedim(-1, 1))
for name in ("mlflow", "ignite", "itk", "nibabel", "PIL", "matplotlib", "joblib", "pandas", "yaml", "fire", "tqdm"):
    try:
        __import__(name)
    except ImportError:
        continue
    raise SystemExit(f"{name} is here")
from monai_iels.cli import main
raise SystemExit(main(["registry", "promote", "name", "1"]))
"""


def needed_by(names):
    """Return the installed packages that these packages need, and what those need."""
    found, todo = {}, list(names)
    while todo:
        name = todo.pop()
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if package.name.lower() not in found:
            found[package.name.lower()] = package
            required = [Requirement(line) for line in package.requires or ()]
            todo += [r.name for r in required if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found.values()


def test_the_core_needs_nothing_of_the_extra(tmp_path):
    """A layer trains in one's own loop where only torch, MONAI, NumPy and SciPy are installed."""
    for package in needed_by(CORE):
        for top in {file.parts[0] for file in package.files if ".." not in file.parts}:
            if not (tmp_path / top).exists():
                os.symlink(package.locate_file(top), tmp_path / top)
    home = str(Path(monai_iels.__file__).parents[1])
    words = [sys.executable, "-I", "-S", "-c", OWN_LOOP, str(tmp_path), home]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith("this command needs ")
    assert "pip install 'monai_iels[bundles]'" in done.stderr


def run_python(code, *flags):
    """Return what a new process prints."""
    words = [sys.executable, *flags, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_itself_loads_nothing():
    code = "import sys; before = set(sys.modules); import monai_iels; dir(monai_iels); monai_iels.__all__"
    loaded = run_python(f"{code}; print(*[name for name in sys.modules if name not in before])").split()
    assert {name for name in loaded if name.startswith("monai")} == {"monai_iels"}
    assert not {"torch", "numpy", "scipy"} & {name.split(".")[0] for name in loaded}


WITH_TORCH_ALONE = """
import sys
for name in ("monai", "scipy", "numba", "ignite", "mlflow"):
    sys.modules[name] = None  # an import raises ImportError
import torch
from monai_iels import GuidedDiffusion, HeatDiffusion, IELNet, InverseEvolutionLayer, Warmup
import monai_iels.networks, monai_iels.warmup
from monai_iels import ConvexCurveMotion, Evolution, ForwardEvolutionLayer
net = IELNet(torch.nn.Conv2d(1, 2, 3, padding=1), InverseEvolutionLayer(HeatDiffusion(), gain=15))
Warmup(net, 2)(2)
net(torch.rand(1, 1, 8, 8)).sum().backward()
InverseEvolutionLayer(GuidedDiffusion(), gain=15)(torch.rand(1, 2, 8, 8), torch.rand(1, 1, 8, 8))
InverseEvolutionLayer(ConvexCurveMotion(), reach=6)
"""


def test_layers_evolutions_and_wrappers_need_torch_alone():
    run_python(WITH_TORCH_ALONE)


WHEN_USED = """
import rlcompleter, sys
import monai_iels
assert rlcompleter.Completer({"m": monai_iels}).attr_matches("m.IELN")[0].startswith("m.IELNet")
assert "torch" in sys.modules and "monai" not in sys.modules
assert monai_iels.Evolved.__module__ == "monai_iels.transforms.dictionary" and "monai" in sys.modules
assert "Evolved" in vars(monai_iels)  # the next use costs nothing
assert monai_iels.metrics.__name__ == "monai_iels.metrics"
from monai_iels import *
assert set(monai_iels.__all__) <= set(globals())
"""


def test_names_are_loaded_when_they_are_used():
    run_python(WHEN_USED)
    with pytest.raises(AttributeError, match="module 'monai_iels' has no attribute 'InverseLayer'"):
        monai_iels.InverseLayer  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'InverseLayer'"):
        from monai_iels import InverseLayer  # noqa: F401


def test_names_of_rooms_that_need_more_are_public_where_that_is_installed(tmp_path):
    """MONAI's locator gets every name that ``dir`` shows, which must not raise in an install of the core alone."""
    package = tmp_path / "monai_iels"
    package.mkdir()
    for name in ("__init__.py", "__init__.pyi"):
        shutil.copy(Path(monai_iels.__file__).with_name(name), package)
    with (package / "__init__.pyi").open("a") as stub:
        stub.write("from monai_iels.runs import Extra as Extra\n")
    (package / "runs.py").write_text("import ignite, mlflow\nclass Extra: pass\n")
    code = f"import sys; sys.path.append({str(tmp_path)!r}); import monai_iels; "
    code += "print('Extra' in monai_iels.__all__, 'Extra' in dir(monai_iels), 'IELNet' in dir(monai_iels))"
    assert run_python(code, "-I", "-S").split() == ["False", "False", "True"]
    (tmp_path / "ignite.py").touch()
    assert run_python(code, "-I", "-S").split() == ["False", "False", "True"]
    (tmp_path / "mlflow.py").touch()
    assert run_python(f"{code}; monai_iels.Extra()", "-I", "-S").split() == ["True", "True", "True"]


def test_the_stub_is_what_type_checkers_and_wheels_get():
    home = Path(monai_iels.__file__).parent
    stub = ast.parse((home / "__init__.pyi").read_text("utf-8"))
    names = [alias for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert all(alias.asname == alias.name for alias in names)  # a stub shows only what it imports as itself
    assert set(monai_iels.__all__) <= {alias.name for alias in names}
    settings = configparser.ConfigParser()
    settings.read(home.parent / "setup.cfg")
    assert "*.pyi" in settings["options.package_data"]["monai_iels"].split(", ")


def test_mypy_knows_the_names(tmp_path):
    file = tmp_path / "use.py"
    file.write_text(
        "from monai_iels import IELNet, Warmup\nreveal_type(IELNet)\nimport monai_iels\nmonai_iels.Nothing\n"
    )
    pytest.importorskip("mypy")
    flags = ["--no-site-packages", "--follow-imports=silent", "--ignore-missing-imports"]
    words = [sys.executable, "-m", "mypy", "--config-file=", f"--cache-dir={tmp_path}", *flags, str(file)]
    home = Path(monai_iels.__file__).parents[1]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=home)
    assert "monai_iels.networks.IELNet" in done.stdout
    assert 'Module has no attribute "Nothing"' in done.stdout
    assert "Found 1 error" in done.stdout


def test_monai_s_locator_works_with_the_names_not_loaded():
    code = """
import monai_iels, sys
import monai.bundle
assert "monai_iels.layers" not in sys.modules
named = {key: {"_target_": f"monai_iels.{key}", "_mode_": "callable"} for key in ("Warmup", "Evolved")}
parser = monai.bundle.ConfigParser({"net": {"_target_": "BasicUNet", "spatial_dims": 2}, **named})
print(type(parser.get_parsed_content("net")).__name__)
print(*[parser.get_parsed_content(key).__name__ for key in named])
"""
    assert run_python(code).split() == ["BasicUNet", "Warmup", "Evolved"]


COMMANDS = """
import io, sys
from contextlib import redirect_stdout
from monai_iels.cli import main, make_parser

def help_of(parser, words=()):
    yield [*words, "--help"]
    for action in parser._actions:
        for name, command in (action.choices or {}).items() if hasattr(action, "_name_parser_map") else ():
            yield from help_of(command, [*words, name])

asked = [["--version"], *help_of(make_parser())]
assert ["study", "run", "--help"] in asked and ["advise", "--help"] in asked
for words in asked:
    with redirect_stdout(io.StringIO()) as out:
        try:
            main(words)
        except SystemExit as end:
            assert end.code == 0, words
    assert out.getvalue().startswith(("usage:", "monai-iels ")), words
print(*sys.modules)
"""


def test_version_and_help_load_neither_torch_nor_monai_nor_what_runs_a_command():
    loaded = set(run_python(COMMANDS).split())
    assert not {"torch", "monai", "numpy", "scipy", "mlflow", "ignite", "yaml", "matplotlib", "PIL"} & loaded
    rooms = {name.split(".")[1] for name in loaded if name.startswith("monai_iels.")}
    assert rooms <= {"cli", "_terminal", "_files", "_yaml"}
    assert (
        "torch"
        not in run_python("import sys; sys.argv[1:] = []; import monai_iels.__main__; print(*sys.modules)").split()
    )
