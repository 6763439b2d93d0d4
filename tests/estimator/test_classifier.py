"""The estimator has scikit-learn's habits: its own checks, clone, parameters, searches, inspection;
any make of table, any party missing."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import protoevfl
from protoevfl import Parties, ProtoEVFLClassifier
from protoevfl.errors import UserError
from protoevfl.report import run_page

FAST = {"warm.epochs": 2, "head.epochs": 6}
N = 160
FLOATS = "probabilities are of single precision: another order of rows changes the eighth digit"
EXPECTED_FAILURES = {
    "check_methods_sample_order_invariance": FLOATS,
    "check_methods_subset_invariance": FLOATS,
}


def data(seed: int = 0, n: int = N) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Three parties of numbers that each tell something about the class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return {
        name: 1.2 * y[:, None] + rng.normal(size=(n, 3)) for name in ("bank", "insurer", "telco")
    }, y


@pytest.fixture(scope="module")
def fitted() -> ProtoEVFLClassifier:
    x, y = data()
    return ProtoEVFLClassifier(overrides=FAST).fit(x, np.where(y, "yes", "no"))


def test_predictions_have_the_shape_and_spelling_of_the_labels(fitted: ProtoEVFLClassifier) -> None:
    x, y = data(1)
    p = fitted.predict_proba(x)
    assert p.shape == (N, 2)
    assert np.allclose(p.sum(1), 1)
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert set(fitted.predict(x)) <= {"no", "yes"}
    assert fitted.score(x, np.where(y, "yes", "no")) > 0.75
    assert is_classifier(fitted)


def test_any_party_may_be_missing_and_any_row_of_it(fitted: ProtoEVFLClassifier) -> None:
    x, y = data(1)
    names = np.where(y, "yes", "no")
    assert 0.6 < fitted.score({"telco": x["telco"]}, names) <= 1
    here = np.arange(N) % 2 == 0
    mixed = fitted.predict_proba({k: x[k] for k in ("bank", "telco")}, present={"telco": here})
    assert np.allclose(
        mixed[here], fitted.predict_proba({k: x[k] for k in ("bank", "telco")})[here], atol=1e-6
    )
    assert np.allclose(mixed[~here], fitted.predict_proba({"bank": x["bank"]})[~here], atol=1e-6)
    with pytest.raises(UserError, match="no party has row 1"):
        fitted.predict({"telco": x["telco"]}, present={"telco": here})
    with pytest.raises(UserError, match="not a party"):
        fitted.predict({"shop": x["telco"]})


def test_clone_and_parameters() -> None:
    model = ProtoEVFLClassifier(method="vanilla", overrides={"epochs": 1}, seed=3, progress=False)
    other = clone(model)
    assert other is not model
    assert (
        other.get_params()
        == model.get_params()
        == {
            "method": "vanilla",
            "preset": "default",
            "overrides": {"epochs": 1},
            "seed": 3,
            "device": "auto",
            "progress": False,
            "decision": "likeliest",
            "parties": None,
            "classes": None,
        }
    )
    assert other.set_params(seed=5).seed == 5


def test_a_decision_names_classes_by_thresholds() -> None:
    x, y = data()
    model = ProtoEVFLClassifier(overrides=FAST, decision={1: 0.2}, progress=False).fit(x, y)
    p = model.predict_proba(x)
    assert np.array_equal(model.predict(x), (p[:, 1] >= 0.2).astype(int))
    with pytest.raises(UserError, match="decision: '7' is not a class"):
        ProtoEVFLClassifier(overrides=FAST, decision={7: 0.2}).fit(x, y)
    with pytest.raises(UserError, match="likeliest, balanced"):
        ProtoEVFLClassifier(overrides=FAST, decision="careful").fit(x, y)


def test_the_same_seed_gives_the_same_model(fitted: ProtoEVFLClassifier) -> None:
    x, y = data()
    again = clone(fitted).fit(x, np.where(y, "yes", "no"))
    assert np.array_equal(again.predict_proba(x), fitted.predict_proba(x))


def test_grid_search_and_cross_validation_cut_the_rows_of_all_parties() -> None:
    x, y = data(n=90)
    grid = {"overrides": [{**FAST, "head.epochs": 1}, FAST]}
    search = GridSearchCV(ProtoEVFLClassifier(), grid, cv=2).fit(Parties(x), y)
    assert search.best_params_["overrides"] in grid["overrides"]
    assert search.predict(Parties(x)).shape == (90,)
    assert len(cross_val_score(ProtoEVFLClassifier(overrides=FAST), Parties(x), y, cv=2)) == 2


@pytest.mark.parametrize("make", ["pandas", "polars", "pyarrow", "list"])
def test_frames_of_any_make_give_the_model_of_numpy(make: str, fitted: ProtoEVFLClassifier) -> None:
    x, y = data()
    labels: Any = np.where(y, "yes", "no")
    columns = {n: {f"x{i}": t[:, i] for i in range(3)} for n, t in x.items()}
    tables: Any
    if make == "list":
        tables = list(x.values())
    else:
        library = pytest.importorskip(make)
        kind = library.table if make == "pyarrow" else library.DataFrame
        tables = {n: kind(c) for n, c in columns.items()}
        labels = labels if make == "pyarrow" else library.Series(labels.tolist())
    model = ProtoEVFLClassifier(overrides=FAST).fit(tables, labels)
    assert np.allclose(model.predict_proba(tables), fitted.predict_proba(x), atol=1e-6)


def test_pools_and_rows_without_label_are_learnt_from() -> None:
    x, y = data()
    more, _ = data(5)
    labels: list[int | None] = [int(v) if i % 4 else None for i, v in enumerate(y)]
    model = ProtoEVFLClassifier(overrides=FAST).fit(x, labels, pools={"telco": more["telco"]})
    assert model.classes_.tolist() == [0, 1]
    assert model.score(x, y) > 0.7
    with pytest.raises(UserError, match="pools has 'shop'"):
        model.fit(x, y, pools={"shop": more["telco"]})


def test_rows_that_some_parties_lack_are_learnt_from() -> None:
    """Whatever stands in the table of a party that lacks a row: it is not looked at."""
    x, y = data(n=240)
    has = {"insurer": np.arange(240) % 3 > 0, "telco": np.arange(240) % 4 > 0}
    model = ProtoEVFLClassifier(overrides=FAST, progress=False).fit(x, y, present=has)
    assert model.owner_.has_own_model
    lacked_by_one = 80 + 60 - 2 * 20  # and not by both
    assert len(model.owner_.memory["further.labels"]) == lacked_by_one
    blank = {name: np.where(has.get(name, y >= 0)[:, None], x[name], 1e6) for name in x}
    other = ProtoEVFLClassifier(overrides=FAST, progress=False).fit(blank, y, present=has)
    assert np.array_equal(model.predict_proba(x, has), other.predict_proba(blank, has))


def test_images() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 90)
    left = (rng.random((90, 1, 8, 6)) * 100 + 50 * y[:, None, None, None]).astype(np.uint8)
    right = rng.random((90, 8, 8)) + y[:, None, None]
    few = {"warm.epochs": 1, "head.epochs": 4, "rounds.count": 0}
    model = ProtoEVFLClassifier(overrides=few).fit({"left": left, "right": right[:, None]}, y)
    assert model.predict({"left": left}).shape == (90,)
    assert model.score({"left": left, "right": right[:, None]}, y) > 0.5


def test_images_beside_columns() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 90)
    pictures = (rng.random((90, 1, 8, 8)) * 100 + 80 * y[:, None, None, None]).astype(np.uint8)
    parties = {"bank": y[:, None] + rng.normal(size=(90, 3)), "clinic": pictures}
    model = ProtoEVFLClassifier(overrides={**FAST, "rounds.count": 0, "head.epochs": 60}).fit(
        parties, y
    )
    assert model.score(parties, y) > 0.7
    assert model.predict({"clinic": pictures[:5]}).shape == (5,)
    with pytest.raises(UserError, match="use proto_evfl"):
        ProtoEVFLClassifier(method="vanilla").fit(parties, y)


def test_what_is_saved_is_loaded(fitted: ProtoEVFLClassifier, tmp_path: Path) -> None:
    x, _ = data(2)
    fitted.save(tmp_path / "model")
    assert "<h1" in run_page.build(tmp_path / "model")  # a page can be made of it
    again = ProtoEVFLClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(x), fitted.predict_proba(x))
    assert again.predict(x).tolist() == fitted.predict(x).tolist()
    assert again.get_params() == fitted.get_params()
    with pytest.raises(UserError, match="exists"):
        fitted.save(tmp_path / "model")
    assert not list(tmp_path.rglob("*.pkl"))


def test_wrong_input_is_one_clear_line(fitted: ProtoEVFLClassifier) -> None:
    x, y = data()
    short = {**x, "telco": x["telco"][:5]}
    for parties, labels, message in (
        (short, y, "same rows"),
        ({"bank": x["bank"]}, y, "2 or more parties"),
        (x["bank"], y, "give the parties as"),
        (x, y[:5], "one value per row"),
        (x, np.zeros(N), "two or more"),
        (x, np.linspace(0, 1, N), "must be classes"),
        (x, np.full(N, np.inf), "contains infinity"),
        (x, None, "requires y"),
    ):
        with pytest.raises(UserError, match=message):
            ProtoEVFLClassifier(overrides=FAST).fit(parties, labels)
    with pytest.raises(UserError, match="has no column 'x2'"):
        fitted.predict({"bank": x["bank"][:, :2]})


def test_import_is_quick_and_loads_neither_torch_nor_sklearn() -> None:
    code = "import sys, protoevfl; assert not {'torch', 'sklearn', 'pyarrow'} & set(sys.modules); print(dir(protoevfl))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ProtoEVFLClassifier" in done.stdout
    assert protoevfl.ProtoEVFLClassifier is ProtoEVFLClassifier
    with pytest.raises(AttributeError, match="nothing"):
        _ = protoevfl.nothing


def checked_model() -> ProtoEVFLClassifier:
    """Tables of any width, as the checks give them, dealt out to two parties."""
    fewest = {"warm.epochs": 1, "head.epochs": 4, "rounds.count": 0}
    return ProtoEVFLClassifier(parties=2, overrides=fewest, progress=False, device="cpu")


@parametrize_with_checks(
    [checked_model()], expected_failed_checks=lambda estimator: EXPECTED_FAILURES
)
def test_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_unfitted_is_said_so() -> None:
    x, y = data(n=10)
    model = ProtoEVFLClassifier()
    for call in (model.predict, model.predict_proba):
        with pytest.raises(NotFittedError):
            call(x)
    for call in (model.score, model.measure):
        with pytest.raises(NotFittedError):
            call(x, y)
    with pytest.raises(NotFittedError):
        model.save("nowhere")


PARTIES = {"bank": ["income", "city"], "insurer": ["claims", "premium"]}


def frame(n: int = N) -> tuple[Any, np.ndarray]:
    """One frame for all parties; `claims` tells most, `nobody` is nobody's."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    table = pandas.DataFrame(
        {
            "income": 0.7 * y + rng.normal(size=n),
            "city": rng.choice(["a", "b"], n),
            "claims": 3 * y + rng.normal(size=n),
            "premium": rng.normal(size=n),
            "nobody": y,
        },
        index=[f"c{i}" for i in range(n)],
    )
    return table, y


def one_frame_model(**more: Any) -> ProtoEVFLClassifier:
    return ProtoEVFLClassifier(parties=PARTIES, overrides=FAST, progress=False, **more)


def test_one_frame_cut_by_columns_is_the_model_of_two_tables(tmp_path: Path) -> None:
    table, y = frame()
    model = one_frame_model().fit(table, y)
    model.save(tmp_path / "model")
    again = ProtoEVFLClassifier.load(tmp_path / "model")
    assert again.get_params() == model.get_params()
    assert np.array_equal(again.predict_proba(table), model.predict_proba(table))
    assert model.feature_names_in_.tolist() == list(table.columns)
    assert model.n_features_in_ == 5
    tables = {party: table[columns] for party, columns in PARTIES.items()}
    other = ProtoEVFLClassifier(overrides=FAST, progress=False).fit(tables, y)
    assert np.array_equal(model.predict_proba(table), other.predict_proba(tables))
    assert np.array_equal(model.predict_proba(tables), other.predict_proba(tables))
    assert other.n_features_in_ == 4
    assert other.feature_names_in_[0] == "bank__income"
    table["nobody"] = 0
    assert np.array_equal(model.predict_proba(table), other.predict_proba(tables))


def test_inspection_pipelines_and_searches_take_one_frame() -> None:
    table, y = frame()
    model = one_frame_model().fit(table, y)
    found = permutation_importance(model, table, y, n_repeats=2, random_state=0)
    assert table.columns[found.importances_mean.argmax()] == "claims"
    assert found.importances_mean[4] == 0
    numbers = table[["income", "claims"]].where(table["income"] > -1)
    split = {"bank": ["income"], "insurer": ["claims"]}
    small = ProtoEVFLClassifier(
        parties=split, overrides={**FAST, "rounds.count": 0}, progress=False
    )
    pipeline = make_pipeline(SimpleImputer().set_output(transform="pandas"), small)
    assert cross_val_score(pipeline, numbers, y, cv=2).mean() > 0.6
    search = GridSearchCV(one_frame_model(), {"seed": [0, 1]}, cv=2).fit(table, y)
    assert search.predict(table).shape == (N,)


def test_frames_are_matched_by_their_index() -> None:
    """The same customers in another order give the same model; labels follow as well."""
    pandas = pytest.importorskip("pandas")
    table, y = frame()
    labels = pandas.Series(y, table.index)
    tables = {party: table[columns] for party, columns in PARTIES.items()}
    shuffled = {**tables, "insurer": tables["insurer"].sample(frac=1, random_state=0)}
    reference = ProtoEVFLClassifier(overrides=FAST, progress=False).fit(tables, y)
    model = clone(reference).fit(shuffled, labels.sample(frac=1, random_state=1))
    assert np.array_equal(model.predict_proba(shuffled), reference.predict_proba(tables))
    assert model.score(shuffled, labels[::-1]) == reference.score(tables, y)
    other = {**tables, "insurer": tables["insurer"].rename({"c3": "c999"})}
    with pytest.raises(UserError, match=r"insurer lacks 1 of the 160 rows of bank.*'c3'"):
        clone(reference).fit(other, y)
    one_table = one_frame_model().fit(table, labels[::-1])
    assert np.array_equal(one_table.predict_proba(table), reference.predict_proba(tables))


def test_polars_frames_have_names() -> None:
    polars = pytest.importorskip("polars")
    table, y = frame()
    model = one_frame_model().fit(table, y)
    other = one_frame_model().fit(polars.from_pandas(table), polars.Series(y))
    assert other.feature_names_in_.tolist() == list(table.columns)
    assert np.array_equal(
        other.predict_proba(polars.from_pandas(table)), model.predict_proba(table)
    )


def test_what_joining_gains_is_measured_on_other_rows(tmp_path: Path) -> None:
    x, y = data(n=240)
    model = ProtoEVFLClassifier(overrides=FAST, progress=False).fit(x, y)
    new, truth = data(1, 400)
    figures = model.measure(new, truth)
    assert figures["test"]["accuracy"] == pytest.approx(model.score(new, truth))
    assert figures["alone"]["auc"] < figures["test"]["auc"]
    assert figures["gain"]["low"] > 0
    assert {share["party"] for share in figures["value"]["parties"]} == set(x)
    model.save(tmp_path / "model")
    assert ProtoEVFLClassifier.load(tmp_path / "model").measured_ == figures
    with pytest.raises(UserError, match="telco is missing"):
        model.measure({name: new[name] for name in ("bank", "insurer")}, truth)
    assert not hasattr(model.fit(x, y), "measured_")


@pytest.fixture(scope="module")
def digits() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Pictures of digits as columns of two parties: the upper and the lower half."""
    pixels, labels = load_digits(return_X_y=True)
    return {"above": pixels[:, :32], "below": pixels[:, 32:]}, labels


def test_classes_without_labels_are_listed_and_found(
    digits: tuple[dict[str, np.ndarray], np.ndarray], tmp_path: Path
) -> None:
    x, y = digits
    train, new = (
        {name: t[part] for name, t in x.items()} for part in (slice(400), slice(400, 900))
    )
    truth = y[400:900]
    labels = [None if digit in (0, 6) else digit for digit in y[:400].tolist()]
    model = ProtoEVFLClassifier(overrides={"warm.epochs": 5}, classes=range(10)).fit(train, labels)
    assert model.classes_.tolist() == list(range(10))
    lines = {digit: int((truth == digit).argmax()) for digit in (0, 6)}
    guess = model.predict(new, examples=lines)
    assert min((guess[truth == digit] == digit).mean() for digit in (0, 6)) > 0.5
    model.save(tmp_path / "model")
    again = ProtoEVFLClassifier.load(tmp_path / "model")
    assert again.owner_.unseen == model.owner_.unseen == (0, 6)
    assert again.get_params() == {**model.get_params(), "classes": list(range(10))}
    with pytest.raises(UserError, match=r"nothing says which rows .* \(0, 6\)"):
        model.predict(new)
    with pytest.raises(UserError, match="examples: 3 is no class without a label; 0, 6"):
        model.predict(new, examples={**lines, 3: 0})
    for line in (500, -1, "first"):
        with pytest.raises(UserError, match=f"line {line!r} of 0 is no row"):
            model.predict(new, examples={**lines, 0: line})


def test_classes_are_listed_whole() -> None:
    x, y = data()
    labels = np.where(y, "yes", "no")
    with pytest.raises(UserError, match="'no' is not among the classes 'maybe', 'yes'; list every"):
        ProtoEVFLClassifier(classes=["yes", "maybe"]).fit(x, labels)
    with pytest.raises(UserError, match="each listed once"):
        ProtoEVFLClassifier(classes=["yes", "no", "no"]).fit(x, labels)
