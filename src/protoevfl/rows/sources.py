"""The paper's four data sets and scikit-learn's digits (as pictures and as a table), each as one
`Dataset` with a fixed train / test division.

name           rows    classes  features                        test rows
fashion_mnist  70,000  10       4 quadrants of 14 x 14          official, 10,000
modelnet10     4,899   10       12 views of 32 x 32             official, 908
adult          48,842  2        14 columns                      official, 16,281
credit         30,000  2        23 columns                      20 % of each class, seed 0
digits         1,797   10       4 quadrants of 4 x 4, bundled   30 % of each class, seed 0
digits_table   1,797   10       64 columns, bundled             30 % of each class, seed 0
"""

from functools import partial
from pathlib import Path

from protoevfl.errors import UserError
from protoevfl.rows import fetch, image_sources, table_sources
from protoevfl.rows.dataset import Dataset

LOADERS = {
    "fashion_mnist": image_sources.fashion_mnist,
    "modelnet10": image_sources.modelnet10,
    "adult": table_sources.adult,
    "credit": table_sources.credit,
    "digits": image_sources.digits,
    "digits_table": table_sources.digits_table,
}
FILES: dict[str, tuple[str, ...]] = {
    "fashion_mnist": tuple(remote.file for remote in image_sources.FASHION_FILES),
    "modelnet10": (image_sources.MODELNET_FILE,),
    "adult": (table_sources.ADULT.file,),
    "credit": (table_sources.CREDIT.file,),
    "digits": (),
    "digits_table": (),
}
NAMES = tuple(LOADERS)


def load(name: str, root: str | Path | None = None) -> Dataset:
    """The data set `name`; `root` is searched first (default: $PROTOEVFL_DATA)."""
    if name not in LOADERS:
        raise UserError(f"unknown data set '{name}'; there are {', '.join(NAMES)}")
    return LOADERS[name](root)


def available(name: str, root: str | Path | None = None) -> bool:
    """Whether `load` needs no download."""
    return all(map(partial(fetch.find, root=root), FILES[name]))
