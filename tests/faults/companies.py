"""Three companies' small files that overlap in part, as a deployment's kits and as a configuration
of one process."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from protoevfl.settings.config import Config, load

NAMES = ("bank", "shop", "tele")
PEOPLE, NEW = 400, 40


def write_files(folder: Path, seed: int = 0, people: int = PEOPLE, new: int = NEW) -> None:
    """`folder`/PARTY gets rows.csv, new.csv and party.toml. The bank has every person and most
    labels; each other company has two thirds of the people, so that rows are shared by all, by two,
    and by nobody."""
    rng = np.random.default_rng(seed)
    traits = rng.normal(size=(people, 4))
    risk = np.where(traits.sum(1) + rng.normal(size=people) > 0, "yes", "no")
    fresh = rng.normal(size=(new, 4))
    for at, name in enumerate(NAMES):
        (folder / name).mkdir(exist_ok=True, parents=True)
        held = rng.permutation(people)
        if at:
            held = held[: 2 * people // 3]
        columns = {"id": [f"C{i}" for i in held], "x": traits[held, at], "w": traits[held, 3]}
        if not at:
            columns["risk"] = [None if i % 7 == 0 else risk[i] for i in held.tolist()]
        pacsv.write_csv(pa.table(columns), folder / name / "rows.csv")
        asked = [i for i in rng.permutation(new).tolist() if (i + at) % 4]
        columns = {"id": [f"N{i}" for i in asked], "x": fresh[asked, at], "w": fresh[asked, 3]}
        pacsv.write_csv(pa.table(columns), folder / name / "new.csv")
        text = 'file = "rows.csv"\nid = "id"\nminimum = 5\npredict_file = "new.csv"\n'
        (folder / name / "party.toml").write_text(text + ("" if at else 'label = "risk"\n'))


def one_process(folder: Path) -> Config:
    """The same files for `train_files`."""
    text = '[label]\nparty = "bank"\ncolumn = "risk"\n[alignment]\nminimum = 5\n'
    text += "".join(f'[[party]]\nname = "{n}"\nfile = "{n}/rows.csv"\nid = "id"\n' for n in NAMES)
    (folder / "protoevfl.toml").write_text(text)
    return load(folder / "protoevfl.toml")


def probabilities(path: Path) -> dict[str, tuple[float, str]]:
    """{id: (probability of "yes", parties)} of a file of predictions."""
    return {
        line["id"]: (line["p_yes"], line["parties"]) for line in pacsv.read_csv(path).to_pylist()
    }
