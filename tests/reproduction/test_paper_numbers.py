from protoevfl.reproduction import paper_numbers
from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.pages.pictures import NAMES


def test_every_table_of_the_paper_is_there_and_numeric() -> None:
    names = {e.source for e in EXPERIMENTS.values() if e.source}
    assert len(names) == 12
    for name in names:
        for row in paper_numbers.table(name):
            for column in set(row) & set(paper_numbers.NUMBERS):
                float(row[column])


def test_keys_name_each_row_once() -> None:
    for name in {e.source for e in EXPERIMENTS.values() if e.source}:
        rows = [
            tuple(row[k] for k in paper_numbers._keys(name)) for row in paper_numbers.table(name)
        ]
        assert len(rows) == len(set(rows)), name


def test_every_printed_number_has_a_cell_of_ours() -> None:
    """Nothing the paper prints is left out (a row of a table that no cell of ours finds)."""
    for experiment in EXPERIMENTS.values():
        if experiment.source is None:
            continue
        names = paper_numbers._keys(experiment.source)
        ours = set()
        for cell in experiment.cells:
            tags = {
                **cell.tags,
                "method": paper_numbers.ALIASES.get(
                    cell.tags.get("method", ""), cell.tags.get("method", "")
                ),
            }
            ours.add(tuple(tags.get(n, "") for n in names))
        theirs = {tuple(row[n] for n in names) for row in paper_numbers.table(experiment.source)}
        assert theirs <= ours, (experiment.name, sorted(theirs - ours)[:3])


def test_rare_class_numbers_are_the_paper_s_names() -> None:
    named = {1: "bed", 2: "chair", 3: "desk", 5: "monitor"}
    assert all(NAMES["modelnet10"][z] == name for z, name in named.items())


def test_quick_cells_have_no_printed_number() -> None:
    tags = {"dataset": "modelnet10", "aligned": "200", "setting": "normal", "method": "vanilla"}
    assert paper_numbers.find("accuracy_images", tags, "accuracy") == 71.03
    assert paper_numbers.find("accuracy_images", {**tags, "quick": "yes"}, "accuracy") is None


def test_both_forms_of_ss_vfl_stand_beside_the_paper_s_and_one_way_beside_none() -> None:
    tags = {"dataset": "modelnet10", "aligned": "200", "setting": "normal"}
    assert (
        paper_numbers.find("accuracy_images", {**tags, "method": "ss_vfl_i"}, "accuracy") == 69.74
    )
    assert (
        paper_numbers.find("accuracy_images", {**tags, "method": "ss_vfl_c"}, "accuracy") == 69.74
    )
    assert (
        paper_numbers.find("accuracy_images", {**tags, "method": "proto_evfl one_way"}, "accuracy")
        is None
    )
