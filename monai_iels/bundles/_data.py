# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""The user's data, as a bundle's configs list and read them."""

from pathlib import Path

from monai.bundle import ConfigParser
from monai.config import PathLike

from monai_iels.bundles._composing import compose
from monai_iels.data import Datalists, Problems, Report, check_files, make_report
from monai_iels.runs import training_config


def list_data(parser: ConfigParser) -> Datalists:
    """Return the cases of each section, as a config lists them.

    Raises:
        ValueError: if the config or the data cannot be used, with the reader's own words.
        OSError: if something cannot be written, such as the cache.
    """
    try:
        return parser.get_parsed_content("datalists")
    except (RuntimeError, ModuleNotFoundError) as error:  # MONAI wraps the reader's own error
        if isinstance(error.__cause__, OSError | ValueError):
            raise error.__cause__ from None
        raise ValueError(str(error.__cause__ or error)) from None


def check_data(bundle: Path, root: PathLike, cache_dir: PathLike | None = None) -> Report:
    """Open every file of a bundle's data, as its training would read them, and report all that is wrong.

    Args:
        bundle: folder of the bundle.
        root: folder of the data.
        cache_dir: where to put what is made once from the data; the user's cache folder by default.

    Raises:
        ValueError: if the bundle is not composed yet, or was changed since.
    """
    parser = composed_config(bundle, root, cache_dir)
    problems, datalists = Problems(), {}
    with problems.collect():
        datalists = list_data(parser)
    problems += check_files(datalists, parser.get_parsed_content("loading"))
    return make_report(parser["source"], root, datalists, problems, {})


def composed_config(bundle: Path, root: PathLike, cache_dir: PathLike | None = None) -> ConfigParser:
    """Return the training config of a bundle, for data in a folder.

    Raises:
        ValueError: if the bundle is not composed yet, or was changed since.
    """
    file = training_config(bundle)
    if not file.is_file():
        raise ValueError(f"{bundle} has no configs/train.json: run monai-iels bundle compose {bundle.parent} first")
    source, shared = bundle / "dataset.yaml", bundle.parent / "shared"
    can_compose = source.is_file() and shared.is_dir()  # not where the bundle alone was copied to
    if can_compose and compose(bundle, shared)["configs/train.json"] != file.read_text("utf-8"):
        raise ValueError(f"{source} was changed: run monai-iels bundle compose {bundle.parent} again")
    parser = ConfigParser(ConfigParser.load_config_file(file))
    parser.update({"bundle_root": str(bundle), "dataset_dir": str(root)})
    if "datalists#cache_dir" in parser:  # not where the user's own list needs none
        parser["datalists#cache_dir"] = cache_dir
    return parser
