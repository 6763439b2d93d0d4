"""Parts of the page: the same numbers as the tables, every setting, one line a party's pool."""

import re

from protoevfl.bench.run import RunConfig
from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.measure import Sample, Store, measure
from protoevfl.reproduction.pages import sections
from protoevfl.reproduction.spec import ACCURACY, Cell
from protoevfl.reproduction.tables import grids
from tests.reproduction import fake


def pair(seeds: int = 2, **config: object) -> tuple[Cell, list[dict[str, object]]]:
    made = RunConfig(**{"dataset": "mine", **config})  # type: ignore[arg-type]
    return Cell({"method": made.method}, made), [fake.record(made, seed) for seed in range(seeds)]


def test_an_experiment_has_the_rows_and_columns_of_its_table() -> None:
    experiment = EXPERIMENTS["parties"]
    measured = measure(experiment, Store(fake.records(experiment.cells)))
    grid, html = grids(experiment, measured)[0], sections.experiment(experiment, measured, [])
    first = html[: html.index("</table>")]
    assert [re.sub("<[^>]+>", "", h) for h in re.findall(r"<th[^>]*>(.*?)</th>", first)] == list(grid.head)
    assert first.count("<tr") == len(grid.texts) + 1
    assert html.count("<h3>") == len(experiment.quantities)


def test_results_leave_out_records_without_metrics_and_one_seed_has_no_spread() -> None:
    cell, _ = pair()
    assert "Nothing recorded" in sections.results([(cell, [{"seed": 0}])])
    one, two = (sections.results([pair(seeds)]) for seeds in (1, 2))
    assert one.count("<td") == two.count("<td")
    assert one.count('data-v=""') == two.count('data-v=""') + 1


def test_a_split_stands_once_with_a_line_for_each_party() -> None:
    pairs = [pair(method="vanilla", parties=3), pair(method="local", parties=3)]
    assert sections.splits(pairs).count("<tr") == 1 + 3
    assert "Nothing recorded" in sections.splits([(pairs[0][0], [{"seed": 0}])])


def test_every_setting_is_there_and_escaped() -> None:
    cell, records = pair(overrides={"epochs": 7})
    records[0]["settings"], records[0]["commit"] = {"name": "<b>"}, "abc123"
    shown = sections.settings([(cell, records)])
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "abc123" in shown
    assert "&quot;epochs&quot;: 7" in shown


def test_verdicts_need_something_measured() -> None:
    assert sections.verdicts(Store([]), quick=False) == ""
    records = fake.records(EXPERIMENTS["accuracy_images"].cells)
    assert "claims-table" in sections.verdicts(Store(records), quick=False)
    small = fake.records(EXPERIMENTS["accuracy_images"].quick)
    assert sections.verdicts(Store(small), quick=True) == ""  # it measures nothing


def test_a_sample_stands_beside_the_paper_s_number() -> None:
    shown = sections.sample_text(Sample(values=(80.0, 82.0), printed=75.0), ACCURACY)
    assert "81.0 ± 1.4" in shown.html
    assert "paper 75.0" in shown.html
    assert "<span class='up'>+6.0</span>" in shown.html
    assert shown.sort == "81.0"
