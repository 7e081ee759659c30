# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The dictionary versions of all transforms, and a list of label errors in one transform."""

import inspect
import pickle

import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from monai.transforms import Compose, Lambdad

import monai_iels
from monai_iels import (
    BiteLabel,
    BiteLabeld,
    CorruptLabel,
    CorruptLabeld,
    GrowLabel,
    HeatDiffusion,
    LabelErrord,
    WobbleLabel,
)


def squares(file="a.png"):
    """Return a label of two squares, with a corner that stands for no class."""
    label = torch.zeros(1, 48, 48, dtype=torch.uint8)
    label[:, 4:20, 6:30] = 1
    label[:, 28:44, 20:44] = 2
    label[:, :6, :10] = 255
    return MetaTensor(label, meta={"filename_or_obj": file})


NEEDED = {
    "CorruptLabel": {"num_classes": 3},
    "Evolve": {"evolution": HeatDiffusion(), "dt": 0.1, "steps": 2},
    "MixAnnotators": {"annotators": [GrowLabel(1.0)]},
}


@pytest.mark.parametrize("name", [name for name in monai_iels.__all__ if f"{name}d" in monai_iels.__all__])
class TestEachTransform:
    def test_the_dictionary_version_changes_each_key_as_the_array_version_does(self, name):
        array, dictionary = getattr(monai_iels, name), getattr(monai_iels, f"{name}d")
        label, needed = torch.where(squares() == 255, 0, squares()), NEEDED.get(name, {})
        data = {"label": label, "second": label, "image": label}
        changed = dictionary(["label", "second", "missing"], **needed, allow_missing_keys=True)(data)
        for key in ("label", "second"):
            torch.testing.assert_close(changed[key], array(**needed)(label), rtol=0, atol=0)
        assert changed["image"] is label
        assert "missing" not in changed
        with pytest.raises(KeyError, match="missing"):
            dictionary("missing", **needed)(data)

    def test_the_dictionary_version_shows_the_arguments_of_the_array_version(self, name):
        array, dictionary = getattr(monai_iels, name), getattr(monai_iels, f"{name}d")
        arguments = list(inspect.signature(array).parameters)
        assert list(inspect.signature(dictionary).parameters) == ["keys", *arguments, "allow_missing_keys"]
        assert dictionary.backend == array.backend

    def test_settings_are_shown_and_compared(self, name):
        array, needed = getattr(monai_iels, name), NEEDED.get(name, {})
        assert array(**needed) == array(**needed)
        for argument, value in inspect.signature(array).bind(**needed).arguments.items():
            assert f"{argument}={value!r}" in repr(array(**needed))


class TestLabelErrord:
    @pytest.mark.parametrize("shared", [True, False])
    @pytest.mark.parametrize("seed", [0, 3])
    def test_a_list_of_errors_equals_a_chain_of_transforms(self, shared, seed):
        wobble = WobbleLabel(seed=seed)
        noise = {"num_classes": 3, "window": 2, "fraction": 0.2, "seed": seed, "shared": shared}
        chain = Compose(
            [
                BiteLabeld("label", 3, 2.0, seed, ignore_index=255),
                Lambdad("label", wobble.keeping(255)),
                CorruptLabeld("label", ignore_index=255, **noise),
            ]
        )
        errors = LabelErrord("label", [BiteLabel(3, 2.0, seed), wobble, CorruptLabel(**noise)], ignore_index=255)
        for file in ("a.png", "b.png"):
            expected, found = chain({"label": squares(file)})["label"], errors({"label": squares(file)})["label"]
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == expected.dtype
            assert found.meta["filename_or_obj"] == file
            assert (found != squares(file)).sum() > 100
            assert torch.equal(found == 255, squares(file) == 255)

    def test_without_an_error_a_label_stays_the_same_object(self):
        label = squares()
        for error in (None, []):
            assert LabelErrord("label", error)({"label": label})["label"] is label

    def test_a_single_error_needs_no_list(self):
        data = {"label": squares(), "image": squares()}
        wrong = LabelErrord("label", GrowLabel(2.0), ignore_index=255)(data)
        assert torch.equal(wrong["label"], GrowLabel(2.0, ignore_index=255)(squares()))
        assert wrong["image"] is data["image"]

    def test_a_callable_of_the_user_gets_the_label_as_it_is(self):
        wrong = LabelErrord("label", [torch.ones_like, lambda label: 3 * label], ignore_index=255)({"label": squares()})
        assert (wrong["label"] == 3).all()

    def test_an_error_that_names_its_own_ignored_value_keeps_that(self):
        error = CorruptLabel(256, fraction=1.0, ignore_index=2)
        wrong = LabelErrord("label", error, ignore_index=255)({"label": squares()})["label"]
        assert torch.equal(wrong[squares() == 2], squares()[squares() == 2])
        assert (wrong[squares() == 255] != 255).any()

    def test_a_bundle_gives_null_one_error_or_a_list(self):
        bite = {"_target_": "monai_iels.BiteLabel", "count": 3, "radius": 2.0, "seed": "@seed", "ignore_index": 255}
        corrupt = {"_target_": "monai_iels.CorruptLabel", "num_classes": 3, "ignore_index": 255}
        apply = {"_target_": "monai_iels.LabelErrord", "keys": "label", "error": "@label_error", "ignore_index": 255}
        bitten = BiteLabel(3, 2.0, 1, ignore_index=255)(squares())
        both = CorruptLabel(3, ignore_index=255)(bitten)
        for error, expected in ((None, squares()), (bite, bitten), ([bite, corrupt], both)):
            config = ConfigParser({"seed": 1, "label_error": error, "apply": apply})
            assert torch.equal(config.get_parsed_content("apply")({"label": squares()})["label"], expected)

    def test_it_can_be_pickled_for_worker_processes(self):
        errors = LabelErrord(["label", "other"], [BiteLabel(), GrowLabel()], 255, allow_missing_keys=True)
        twin = pickle.loads(pickle.dumps(errors))
        assert torch.equal(twin({"label": squares()})["label"], errors({"label": squares()})["label"])

    def test_what_cannot_be_called_is_refused(self):
        message = "`error` must be a transform such as CorruptLabel, a list of them, or None, got 'noise'"
        for error in ("noise", [BiteLabel(), "noise"]):
            with pytest.raises(TypeError, match=message):
                LabelErrord("label", error)
        with pytest.raises(KeyError, match="label"):
            LabelErrord("label", BiteLabel())({})
