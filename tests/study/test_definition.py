# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What a study's file means: rows crossed with columns, and the training that each variant of ours is."""

import csv
import json
import os
import shutil
from contextlib import nullcontext
from inspect import signature
from pathlib import Path

import pytest
import yaml
from helpers import BUNDLES, FEATURES, options, prepare
from monai.bundle import ConfigParser
from monai.utils import ensure_tuple

from monai_iels import Training
from monai_iels.cli import main
from monai_iels.study import Study, check_overrides, presets, read_study, select_variants

STUDIES = sorted(BUNDLES.glob("*/studies/*.yaml"))
by_study = pytest.mark.parametrize("file", STUDIES, ids=lambda file: f"{file.parts[-3]}-{file.stem}")


def study(folder, content):
    file = folder / "s.yaml"
    file.write_text(content.replace("WBC", str(BUNDLES / "wbc")))
    return file


def test_every_row_is_crossed_with_every_column(tmp_path):
    file = study(
        tmp_path,
        """
bundle: WBC
seeds: 2
settings: {epochs: 1, batch_size: 1, seed: 1}
rows: {clean: {}, noisy: {batch_size: 3, epochs: 3}}
columns: {A: {epochs: 2}, noisy / B: {seed: 2}, C: {}}
""",
    )
    assert read_study(file).seeds == [0, 1]
    assert list(read_study(file).variants.items()) == [
        ("clean / A", {"batch_size": 1, "seed": 1, "epochs": 2}),
        ("clean / C", {"epochs": 1, "batch_size": 1, "seed": 1}),
        ("noisy / A", {"seed": 1, "batch_size": 3, "epochs": 3}),
        ("noisy / B", {"seed": 2, "batch_size": 3, "epochs": 3}),
        ("noisy / C", {"seed": 1, "batch_size": 3, "epochs": 3}),
    ]


def test_without_rows_the_columns_are_the_variants(tmp_path):
    file = study(tmp_path, "{bundle: WBC, seeds: 1, settings: {epochs: 1}, columns: {A: {}, G / A: {seed: 2}, 5: {}}}")
    variants = {"A": {"epochs": 1}, "G / A": {"epochs": 1, "seed": 2}, "5": {"epochs": 1}}
    assert list(read_study(file).variants.items()) == list(variants.items())


def test_a_later_override_replaces_what_was_changed_inside(tmp_path):
    text = "{bundle: WBC, seeds: 1, settings: {loss#loss#lambda_dice: 1.0, layer#steps: 3}, columns: {A: {loss: L}}}"
    (variant,) = read_study(study(tmp_path, text)).variants.values()
    assert list(variant.items()) == [("layer#steps", 3), ("loss", "L")]


def test_methods_come_before_what_stands_beside_them(tmp_path):
    column = "{loss#sigma: 2.0, layer#steps: 0, method: [spatial_label_smoothing, majority_filter]}"
    (variant,) = read_study(study(tmp_path, f"{{bundle: WBC, seeds: 1, columns: {{A: {column}}}}}")).variants.values()
    assert list(variant) == ["loss", "repair", "loss#sigma", "layer#steps"]
    assert variant["loss"]["sigma"] == 1.0


def test_two_variants_do_not_share_what_a_parser_changes(tmp_path):
    text = "{bundle: WBC, seeds: 1, settings: {method: heat_layer}, columns: {A: {layer#steps: 0}, B: {}}}"
    first, second = read_study(study(tmp_path, text)).variants.values()
    parser = ConfigParser({})
    parser.update(first)
    assert parser["layer"]["steps"] == 0
    assert "steps" not in second["layer"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "a study in YAML"),
        ("[1]", "must hold keys and values (a study), got [1]"),
        ("{bundle: wbc, variants: {a: {}}, seeds: 1}", "unknown key 'variants'"),
        ("{bundle: wbc, column: {a: {}}, seeds: 1}", "unknown key 'column': did you mean 'columns'?"),
        ("{bundle: wbc, columns: {a: {}}}", "must have a bundle, seeds and columns; 'seeds' is missing"),
        ("{bundle: wbc, columns: {a: 1}, seeds: 1}", "'a' in 'columns' must hold overrides, such as"),
        ("{bundle: wbc, columns: {}, seeds: 1}", "must have a bundle, seeds and columns; 'columns' is missing"),
        ("{bundle: wbc, columns: , seeds: 1}", "must have a bundle, seeds and columns; 'columns' is missing"),
        ("{bundle: wbc, columns: [a], seeds: 1}", "'columns' must be names with overrides, such as U-Net: {}"),
        ("{bundle: wbc, columns: {a: {}}, rows: 3, seeds: 1}", "'rows' must be names with overrides"),
        ("{bundle: wbc, columns: {a: {}}, rows: {b: 2}, seeds: 1}", "'b' in 'rows' must hold overrides"),
        (
            "{bundle: wbc, columns: {c / a: {}}, rows: {b: {}}, seeds: 1}",
            "begins with 'c / ', but there is no such row",
        ),
        ("{bundle: wbc, columns: {a: {}, b / a: {}}, rows: {b: {}}, seeds: 1}", "must differ in letters or digits"),
        ("{bundle: wbc, columns: {a: {}}, settings: 3, seeds: 1}", "'settings' must hold overrides"),
        ("{bundle: wbc, columns: {a: {}}, seeds: 0}", "the number of seeds must be at least 1, got 0"),
        ("{bundle: wbc, columns: {a: {}}, seeds: many}", "the number of seeds must be at least 1, got many"),
        ("{bundle: wcb, columns: {a: {}}, seeds: 1}", "there is no bundle 'wcb'"),
        ("{bundle: WBC, columns: {a b: {}, a-b: {}}, seeds: 1}", "must differ in letters or digits"),
        ("{bundle: WBC, columns: {'': {}}, seeds: 1}", "must differ in letters or digits"),
        ("{bundle: WBC, columns: {noisy / truth: {}}, seeds: 1}", "a variant cannot be called 'truth'"),
        ("{bundle: WBC, columns: {a: {epoch: 3}}, seeds: 1}", "'epochs'"),
        ("{bundle: WBC, columns: {a: {1: 2}}, seeds: 1}", "'a' in 'columns' must hold overrides"),
        ("{bundle: WBC, columns: {a: {method: t_los}}, seeds: 1}", "unknown method 't_los': did you mean 't_loss'?"),
        ("{bundle: WBC, columns: {a: {method: 3}}, seeds: 1}", "unknown method '3': did you mean"),
        ("{bundle: WBC, columns: {a: {method: [t_loss, dice_loss]}}, seeds: 1}", "both set 'loss': keep one of them"),
        ("{bundle: WBC, columns: {a: {run_name: x}}, seeds: 1}", "'run_name' is set by the study itself; remove it"),
        ("{bundle: WBC, columns: {a: {track: false}}, seeds: 1}", "'track' is set by the study itself; remove it"),
        ("{bundle: WBC, columns: {a: {datalists#cache_dir: x}}, seeds: 1}", "is set by the study itself; remove it"),
        ("{bundle: WBC, columns: {a: {}}, seeds: 1, 1: 2}", "keys must be words, got 1"),
        ("bundle: wbc\n\tseeds: 1", "in line 2"),
    ],
)
def test_a_wrong_study_is_refused_in_one_sentence(content, sentence, tmp_path, capsys):
    file = study(tmp_path, content)
    assert main(["study", "run", str(file), "--output_dir", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@by_study
def test_every_study_names_what_its_bundle_has(file):
    found = read_study(file)
    assert found.bundle.name == file.parts[-3]
    check_overrides(found)


@by_study
@pytest.mark.filterwarnings("ignore:.*amplifies up to")
def test_a_training_accepts_every_variant(file, tmp_path):
    """Its keys, its values, and where its layer is."""
    found = read_study(file)
    for overrides in found.variants.values():
        small = options(found.bundle.name, tmp_path, **presets(found.bundle)["cpu"]) | overrides
        small |= {"features": FEATURES, "device": "cpu"}
        if found.bundle.name == "cityscapes":  # its networks need an extra that is not installed
            small = {key: value for key, value in small.items() if not key.startswith("network_def#")}
        (tmp_path / "arguments.json").write_text(
            json.dumps(small)
        )  # as a study does: MONAI leaves out arguments that are None
        workflow = prepare("Training", args_file=str(tmp_path / "arguments.json"))
        for key in ("train#network", "train#loss", "train#preprocessing", "validate#postprocessing"):
            assert callable(workflow.parser.get_parsed_content(key))
        assert workflow.parser.get_parsed_content("optimizer").param_groups


def meaning(parser):
    """Return in words what a variant is: its layer, and what else is not the bundle's own."""
    get = parser.get_parsed_content
    layer, loss = get("layer"), get("loss")
    words = [f"{layer.steps} x {layer.dt:.3g} {layer.evolution}" if layer.steps else "alone"]
    if layer.steps and get("iel_warmup"):
        words.append(f"warm-up {get('iel_warmup')}")
    loss = loss.loss if type(loss).__name__ == "LabeledPixelsLoss" else loss
    names = {"QuasiConcavityLoss": "weight", "GradientEnergyLoss": "weight", "GeneralizedCrossEntropyLoss": "q"}
    if (kind := type(loss).__name__) != "DiceCELoss":
        words.append(f"{kind} {getattr(loss, names[kind])}" if kind in names else kind)
    elif loss.lambda_dice:
        words.append(f"Dice {loss.lambda_dice}")
    words += [f"repair {_named(each)}" for each in get("repair")]
    words += [f"smoothing {_named(each)}" for each in getattr(get("smoothing"), "transforms", [])]
    return ", ".join(words + [_named(each) for each in ensure_tuple(get("label_error")) if each])


def _named(transform):
    """Return a transform's class, and its plain parameters of which a study sets one."""
    transform = getattr(transform, "transform", transform)
    known = ("count", "radius", "components", "window", "fraction", "shared", "size", "length", "slices", "share")
    known += ("strength", "level", "scale", "expand", "flip", "smoothing", "evolution", "dt", "steps")
    own = [f"{name}={getattr(transform, name)}" for name in known if hasattr(transform, name)]
    return " ".join([type(transform).__name__, *own])


@by_study
@pytest.mark.parametrize("preset", ["cpu", "paper"])
@pytest.mark.filterwarnings("ignore:.*amplifies up to")
def test_every_variant_means_what_its_results_were_measured_with(file, preset):
    found, what = read_study(file), f"{file.parts[-3]}/{file.stem}"
    known = yaml.safe_load(Path(__file__).with_name("meanings.yaml").read_text("utf-8"))[what]
    columns, rows = known["columns"] | (known.get("paper", {}) if preset == "paper" else {}), known.get("rows")
    for name, overrides in found.variants.items():
        parser = ConfigParser(ConfigParser.load_config_file(found.bundle / "configs" / "train.json"))
        parser.update({**presets(found.bundle)[preset], **overrides})
        group, _, short = name.rpartition(" / ")
        words = [columns[short], rows[group]] if rows else [columns[name]]
        assert meaning(parser) == ", ".join(filter(None, words)), name


@by_study
def test_published_variants_have_the_names_of_the_study(file):
    table = BUNDLES.parent / "docs" / "results" / f"{file.parts[-3]}-{file.stem}" / "table.csv"
    if table.exists():
        with table.open(newline="", encoding="utf-8") as stream:
            names = [" / ".join(filter(None, (row["group"], row["variant"]))) for row in csv.DictReader(stream)]
        variants = read_study(file).variants
        assert names == [name for name in variants if name in names]


def test_the_quickstart_differs_in_the_layer_alone():
    without, with_layer = read_study(BUNDLES / "wbc" / "studies" / "quickstart.yaml").variants.values()
    assert without.pop("layer#steps") == 0
    assert with_layer.pop("layer#steps") > 0
    same = {key: value for key, value in with_layer.items() if not key.startswith("layer#")}
    assert same == without
    assert without["label_error"]["fraction"] > 0


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("epoch", "'cpu': unknown key 'epoch'"),
        ("output_dir", "'cpu': 'output_dir' is set by the study itself"),
    ],
)
def test_a_preset_is_checked_as_a_variant_is(tmp_path, capsys, key, message):
    shutil.copytree(BUNDLES / "wbc" / "configs", tmp_path / "mine" / "configs")
    (tmp_path / "mine" / "presets.yaml").write_text(json.dumps({"cpu": {key: 3}}))
    file = study(tmp_path, "{bundle: mine, seeds: 1, columns: {a: {}}}")
    assert main(["study", "run", str(file), "--preset", "cpu", "--output_dir", str(tmp_path / "out")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


OF_THE_STUDY = {"bundle_root", "experiment_name", "resume", "run_name", "run_tags", "track", "tracking_uri"}


@pytest.mark.parametrize("key", sorted(signature(Training).parameters.keys() - {"config_file", "settings"}))
def test_a_variant_may_set_what_a_training_takes(key, tmp_path):
    for mistyped, sentence in (False, f"'{key}' is set by the study itself"), (True, f"unknown key '{key}s': did you"):
        found = Study("s", BUNDLES / "wbc", {"a": {key + "s" * mistyped: "x"}}, [0], tmp_path / "s.yaml")
        refused = mistyped or key in OF_THE_STUDY
        with pytest.raises(ValueError, match=sentence) if refused else nullcontext():
            check_overrides(found)


def test_a_variant_may_have_keys_of_its_own(tmp_path):
    own = {"known_keys": ["width"], "width": 4, "features": "$[@width] * 6"}
    check_overrides(Study("s", BUNDLES / "wbc", {"a": own}, [0], tmp_path / "s.yaml"))
    assert prepare("Training", **options("wbc", tmp_path, **own))["features"] == [4] * 6


def test_some_variants_keep_the_baseline_of_their_group():
    found = read_study(BUNDLES / "wbc" / "studies" / "noisy_labels.yaml")
    some = select_variants(found, ["clean labels / majority filter"])
    assert list(some.variants) == ["clean labels / U-Net", "clean labels / majority filter"]
    with pytest.raises(ValueError, match=r"--variants: there is no variant 'U-Net'; choose from clean labels . U-Net"):
        select_variants(found, ["U-Net"])


def test_the_bundle_is_found_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = Path(os.path.relpath(STUDIES[-1], tmp_path))
    assert read_study(relative).bundle.is_dir()


def test_the_page_names_every_study():
    page = (BUNDLES.parent / "docs" / "do" / "studies.md").read_text("utf-8")
    assert all(f"`{file.parts[-3]}/studies/{file.name}`" in page for file in STUDIES)
