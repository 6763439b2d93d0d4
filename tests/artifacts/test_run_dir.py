"""A run directory: complete, checked, separable; what is loaded predicts as what was saved."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from protoevfl.artifacts.owner import StoredOwner
from protoevfl.artifacts.party import StoredParty
from protoevfl.artifacts.run_dir import Run, add_to_run, open_run
from protoevfl.errors import UserError
from protoevfl.settings.config import Config


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_the_layout_and_nothing_else(trained: Path) -> None:
    files = {str(p.relative_to(trained)) for p in trained.rglob("*") if p.is_file()}
    own = {"party.json", "encoder.json", "model.safetensors"}
    pair = {"alignment.json", "aligned_rows.i64"}  # of each other party with the active one
    owner = {"owner.json", "head.safetensors", "test.safetensors", "metrics.json"}
    expected = {f"{p}/{f}" for p in ("bank", "insurer", "telco") for f in own} | {
        f"owner/{f}" for f in owner
    }
    expected |= {f"{p}/{f}" for p in ("insurer", "telco") for f in pair}
    assert files == expected | {"run.json"}
    manifest = json.loads((trained / "run.json").read_text())
    assert manifest["format"] == "protoevfl-run"
    assert set(manifest["versions"]) == {"protoevfl", "torch", "numpy", "pyarrow", "python"}


def test_a_passive_party_s_folder_tells_nothing_of_labels_or_others(trained: Path) -> None:
    for name, others in (
        ("insurer", ("bank", "telco", "income", "minutes")),
        ("telco", ("bank", "insurer", "claims")),
    ):
        content = b"".join(p.read_bytes() for p in (trained / name).iterdir())
        assert all(word.encode() not in content for word in others)
        assert b"default" not in content.replace(b'"preset": "default"', b"")
        facts = json.loads((trained / name / "party.json").read_text())
        assert not {"classes", "labels", "metrics"} & set(facts)


def test_loading_gives_the_same_predictions(run: Run, trained: Path) -> None:
    owner, again = run.need_owner(), StoredOwner.load(trained / "owner")
    present = torch.rand(3, len(owner.test.labels)) < 0.7
    present |= ~present.any(0)
    p = owner.probabilities(owner.test.embeddings, present, owner.test.own)
    assert torch.equal(p, again.probabilities(again.test.embeddings, present, again.test.own))
    assert torch.allclose(p.sum(1), torch.ones(len(p)), atol=1e-5)


def test_rows_are_predicted_by_their_own_parties_alone(run: Run) -> None:
    owner = run.need_owner()
    n = len(owner.test.labels)
    present = torch.zeros(3, n, dtype=torch.bool)
    present[0], present[1, ::2] = True, True
    mixed = owner.probabilities(owner.test.embeddings, present, owner.test.own)
    junk = {m: torch.where(present[m][:, None], f, 1e6) for m, f in owner.test.embeddings.items()}
    assert torch.equal(mixed, owner.probabilities(junk, present, owner.test.own))
    assert torch.allclose(mixed[::2], owner.subset(owner.test, (0, 1))[::2], atol=1e-6)
    assert torch.allclose(mixed[1::2], owner.subset(owner.test, (0,))[1::2], atol=1e-6)


def test_a_party_embeds_the_same_in_any_portions(run: Run) -> None:
    party = run.parties["insurer"]
    rows = torch.randn(10, party.encoder.width)  # type: ignore[union-attr]
    whole = party.embed([rows])
    assert torch.allclose(whole, party.embed([rows[:3], rows[3:]]), atol=1e-6)
    assert party.embed([]).shape == (0, whole.shape[1])


def test_folders_can_be_taken_away(copy: Path) -> None:
    shutil.rmtree(copy / "telco")
    run = open_run(copy)
    assert run.names == ("bank", "insurer", "telco")
    with pytest.raises(UserError, match="that company keeps it"):
        run.need_party("telco")
    with pytest.raises(UserError, match="no party 'shop'"):
        run.need_party("shop")
    shutil.rmtree(copy / "owner")
    with pytest.raises(UserError, match="only the company with the labels"):
        open_run(copy).need_owner()
    alone = StoredParty.load(Path(shutil.copytree(copy / "insurer", copy.parent / "alone")))
    assert alone.name == "insurer"
    assert alone.alignment is not None


@pytest.mark.parametrize(
    "file",
    ["bank/model.safetensors", "bank/encoder.json", "owner/head.safetensors", "bank/party.json"],
)
def test_damage_is_noticed(copy: Path, file: str) -> None:
    data = bytearray((copy / file).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / file).write_bytes(bytes(data))
    with pytest.raises(UserError, match=r"checksum|damaged"):
        open_run(copy)


def test_a_folder_of_another_run_does_not_fit(copy: Path, config: Config) -> None:
    facts = json.loads((copy / "bank" / "party.json").read_text())
    (copy / "bank" / "party.json").write_text(json.dumps({**facts, "index": 1}))
    with pytest.raises(UserError, match="of another run"):
        open_run(copy)
    with pytest.raises(UserError, match="not a run directory"):
        open_run(config.path.parent)


def test_a_company_adds_its_part_and_the_manifest_names_what_is_here(
    run: Run, tmp_path: Path
) -> None:
    names = run.names
    facts = {name: run.manifest[name] for name in ("method", "privacy", "seed")}
    add_to_run(tmp_path, names, run.parties[names[1]], facts)
    own = open_run(tmp_path)
    assert (list(own.parties), own.owner, own.names) == ([names[1]], None, names)
    add_to_run(tmp_path, names, run.need_owner(), facts)
    add_to_run(tmp_path, names, run.parties[names[1]], facts)  # again: it is replaced
    assert set(open_run(tmp_path).manifest["folders"]) == {names[1], "owner"}
    run.parties[names[0]].save(tmp_path / names[0])  # copied here later
    assert set(open_run(tmp_path).parties) == set(names[:2])
