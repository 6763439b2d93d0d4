"""The curve operations commute, keep order, agree with openmined-psi's own protocol and between
processes."""

import pytest

from protoevfl.errors import UserError
from protoevfl.rows import psi
from protoevfl.rows.psi import ORDER, POINT, curve, inverse, new_key, table

pytest.importorskip("private_set_intersection")
IDS = [f"id{i}" for i in range(40)]


def _split(points: bytes) -> list[bytes]:
    return [points[i : i + POINT] for i in range(0, len(points), POINT)]


def test_keys_commute_and_undo() -> None:
    a, b = new_key(), new_key()
    with curve(1) as c:
        assert c.reencrypt(b, c.encrypt(a, IDS)) == c.reencrypt(a, c.encrypt(b, IDS))
        assert c.reencrypt(inverse(a), c.reencrypt(b, c.encrypt(a, IDS))) == c.encrypt(b, IDS)


def test_order_kept_and_ids_distinct() -> None:
    key = new_key()
    with curve(1) as c:
        points = table(c.encrypt(key, IDS))
        assert points[7] == table(c.encrypt(key, IDS[7:8]))[0]
    assert len(set(points.tolist())) == len(IDS)


def test_fresh_keys() -> None:
    assert len({new_key() for _ in range(20)}) == 20
    assert all(0 < int.from_bytes(new_key()) < ORDER for _ in range(20))


def test_short_keys_are_padded() -> None:
    small = (12345).to_bytes(32)
    with curve(1) as c:
        assert c.reencrypt(inverse(small), c.reencrypt(small, c.encrypt(new_key(), IDS[:3]))) != b""


def test_agrees_with_the_library_protocol() -> None:
    from private_set_intersection.python import DataStructure, Request, client, server

    theirs, mine = server.CreateWithNewKey(True), client.CreateWithNewKey(True)
    setup = theirs.CreateSetupMessage(1e-9, 3, IDS[:20], DataStructure.RAW)
    with curve(1) as c:
        points = c.encrypt(mine.GetPrivateKeyBytes().rjust(32, b"\0"), ["id3", "no", "id9"])
        ours = c.encrypt(theirs.GetPrivateKeyBytes().rjust(32, b"\0"), IDS[:20])
    assert list(setup.raw.encrypted_elements) == sorted(_split(ours))
    response = theirs.ProcessRequest(
        Request(reveal_intersection=True, encrypted_elements=_split(points))
    )
    assert sorted(mine.GetIntersection(setup, response)) == [0, 2]


def test_processes_give_the_same_points_and_report_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(psi, "CHUNK", 7)
    key, seen = new_key(), []
    with curve(1) as one, curve(2) as two:
        points = two.encrypt(key, IDS, lambda done, total: seen.append((done, total)))
        assert points == one.encrypt(key, IDS)
        assert two.reencrypt(key, points) == one.reencrypt(key, points)
    assert seen[-1] == (40, 40)
    assert [d for d, _ in seen] == sorted(d for d, _ in seen)


@pytest.mark.parametrize("processes", [1, 2])
def test_bytes_off_the_curve_are_refused(processes: int) -> None:
    with curve(processes) as c:
        with pytest.raises(UserError, match="decode point"):
            c.reencrypt(new_key(), b"\x02" + b"\xff" * 32)
        assert len(c.encrypt(new_key(), IDS[:2])) == 2 * POINT  # and the worker lives on


def test_a_dead_worker_is_one_clear_line() -> None:
    with curve(2) as c:
        for _ in range(2):
            worker = c._free.get()
            worker.kill()
            worker.wait()
            c._free.put(worker)
        with pytest.raises(UserError, match="run it again"):
            c.encrypt(new_key(), IDS)
