"""A party's own secret: drawn once, at home, for this user alone; every purpose has its own key."""

import threading
from pathlib import Path

import pytest

from protoevfl.deploy.secret import derived, own_secret, run_seed
from protoevfl.errors import UserError


def test_it_is_drawn_once_and_only_this_user_reads_it(tmp_path: Path) -> None:
    secret = own_secret(tmp_path)
    assert len(secret) == 32
    assert own_secret(tmp_path) == secret
    assert (tmp_path / "secret.key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret.key"]


def test_processes_that_draw_at_once_agree(tmp_path: Path) -> None:
    drawn: list[bytes] = []
    together = threading.Barrier(8)

    def draw() -> None:
        together.wait()
        drawn.append(own_secret(tmp_path))

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == 8
    assert len(set(drawn)) == 1


def test_every_purpose_run_and_party_has_its_own_key(tmp_path: Path) -> None:
    kits = [tmp_path / name for name in ("bank", "shop")]
    for kit in kits:
        kit.mkdir()
    keys = {derived(kit, what, run) for kit in kits for what in "ab" for run in ("r1", "r2")}
    assert len(keys) == 8
    assert run_seed(kits[0], "r1") == run_seed(kits[0], "r1") >= 0
    assert run_seed(kits[0], "r1") != run_seed(kits[1], "r1")


def test_a_damaged_secret_is_named_and_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "secret.key").write_bytes(b"short")
    with pytest.raises(UserError, match=r"secret\.key is damaged: 5 bytes instead of 32"):
        own_secret(tmp_path)
    assert (tmp_path / "secret.key").read_bytes() == b"short"
