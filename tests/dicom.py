# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""DICOM series for tests."""

import locale

import itk
import numpy as np


def write_series(volume, folder, series="2"):
    """Write a volume as a DICOM series with ITK, one file a slice."""
    folder.mkdir(exist_ok=True)
    before = locale.setlocale(locale.LC_ALL)
    spacing, origin = list(volume.GetSpacing()), list(volume.GetOrigin())
    for index, pixels in enumerate(itk.array_view_from_image(volume)):
        tags = {
            "0008|0060": "MR",
            "0008|0016": "1.2.840.10008.5.1.4.1.1.4",
            "0020|000d": "1.2.826.0.1.3680043.2.1125.1",
            "0020|000e": f"1.2.826.0.1.3680043.2.1125.{series}",
            "0020|0013": str(index + 1),
            "0020|0032": "\\".join(f"{v:g}" for v in (*origin[:2], origin[2] + index * spacing[2])),
            "0020|0037": "1\\0\\0\\0\\1\\0",
        }
        piece = itk.image_from_array(np.ascontiguousarray(pixels))
        piece.SetSpacing(spacing[:2])
        for key, value in tags.items():
            piece.GetMetaDataDictionary().Set(key, itk.MetaDataObject[str].New(MetaDataObjectValue=value))
        codec = itk.GDCMImageIO.New()
        codec.KeepOriginalUIDOn()
        itk.imwrite(piece, str(folder / f"{series}-{index:03}.dcm"), imageio=codec)
    locale.setlocale(locale.LC_ALL, before)  # GDCM leaves the "C" locale, in which Python reads no UTF-8
    return folder
