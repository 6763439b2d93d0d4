"""The result of alignment at one party, and the keyed hashes that make it the same at all parties.

    order:   rows sorted by HMAC(k_order, id)
    digest:  HMAC(k_digest, role | id_1 | id_2 | ... | id_n)

k_order and k_digest come from one fresh run key. Only the active party has k_order, so the order
tells nothing about any file; all parties have k_digest and prove with it, over the ids themselves,
that they hold the same ordered list.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protoevfl.rows.align_wire import AlignmentError
from protoevfl.rows.ids import IdRules, Ids, shape

VERSION = 1
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Alignment:
    """One party's result: its data rows in the common order, and what it needs to prove that
    order."""

    party: str
    rows: Rows  # (n,) row numbers in the party's own file, 0 is the first data row
    key: bytes  # of the digest; shared by the parties of this run
    digest: str  # keyed hash of the ordered ids: equal at all parties
    counts: dict[str, int]
    rules: IdRules

    def save(self, folder: Path) -> None:
        """Write alignment.json and aligned_rows.i64 into the party's own folder, whole or not at
        all."""
        folder.mkdir(parents=True, exist_ok=True)
        rows = np.ascontiguousarray(self.rows, dtype="<i8").tobytes()
        facts = {
            "version": VERSION,
            "party": self.party,
            "digest": self.digest,
            "key": self.key.hex(),
            "counts": self.counts,
            "rules": asdict(self.rules),
            "rows": len(self.rows),
            "rows_sha256": hashlib.sha256(rows).hexdigest(),
        }
        _replace(folder / _ROWS, rows)
        # last: its presence means complete
        _replace(folder / _FACTS, json.dumps(facts, indent=1).encode())

    @classmethod
    def load(cls, folder: Path) -> "Alignment":
        """Read what `save` wrote; UserError when it is absent, damaged or of another version."""
        try:
            facts = json.loads((folder / _FACTS).read_bytes())
            rows = (folder / _ROWS).read_bytes()
            if (
                facts["version"] != VERSION
                or facts["rows_sha256"] != hashlib.sha256(rows).hexdigest()
            ):
                raise ValueError
            rules = IdRules(**facts["rules"])
            key = bytes.fromhex(facts["key"])
            numbers = np.frombuffer(rows, dtype="<i8").astype(np.int64)
            return cls(facts["party"], numbers, key, facts["digest"], facts["counts"], rules)
        except FileNotFoundError:
            raise AlignmentError(f"{folder} holds no alignment; run align first") from None
        except (ValueError, KeyError, TypeError):
            raise AlignmentError(
                f"the alignment in {folder} is damaged or of another version; run align again"
            ) from None


_FACTS, _ROWS = "alignment.json", "aligned_rows.i64"


def verify(alignment: Alignment, ids: Ids) -> None:
    """Before training: the file still holds the aligned ids in those rows, else UserError."""
    at = {int(row): value for row, value in zip(ids.rows, ids.values)}
    values = [at.get(int(row), "") for row in alignment.rows]
    if not hmac.compare_digest(_order_digest(alignment.key, values), alignment.digest):
        raise AlignmentError(
            f"the rows of {alignment.party} are no longer those that were aligned; run align again"
        )


def same_order(alignments: Iterable[Alignment] | Mapping[str, str]) -> None:
    """Before training: all parties show the same digest, else UserError naming those that
    differ."""
    shown = (
        dict(alignments)
        if isinstance(alignments, Mapping)
        else {a.party: a.digest for a in alignments}
    )
    if len(set(shown.values())) > 1:
        listed = ", ".join(f"{party} {digest[:12]}" for party, digest in shown.items())
        raise AlignmentError(
            f"the parties are aligned differently ({listed}); run align again at all of them"
        )


def order(values: list[str], run_key: bytes) -> Rows:
    """(n,) places of `values` sorted by a keyed hash: the same for the same ids, whatever the
    file's order."""
    key = hmac.digest(run_key, b"order", "sha256")
    return np.argsort(
        np.array([hmac.digest(key, v.encode(), "sha256").hex() for v in values], dtype="S64")
    )


def digest_key(run_key: bytes) -> bytes:
    """The part of the run key that passive parties get: enough to prove the order, not to compute
    it."""
    return hmac.digest(run_key, b"digest", "sha256")


def prove(key: bytes, role: str, values: list[str]) -> bytes:
    """(32 bytes) keyed hash of the ordered ids; the role keeps one side from echoing the other's
    proof."""
    mac = hmac.new(key, role.encode() + b"\0", hashlib.sha256)
    for value in values:
        text = value.encode()
        mac.update(len(text).to_bytes(4) + text)
    return mac.digest()


def _order_digest(key: bytes, values: list[str]) -> str:
    """What all parties compare before training."""
    return prove(key, "order", values).hex()


def enough(common: int, minimum: int, own: list[str], hints: list[str] | None = None) -> None:
    """Refuse an intersection under the minimum, with what may be the reason."""
    if common < minimum:
        why = (
            " ".join(hints or [])
            or f"compare how the ids look with the other parties (here: {shape(own)})"
        )
        raise AlignmentError(
            f"only {common} rows in common, fewer than the minimum {minimum}: {why}"
        )


def make_result(
    name: str, ids: Ids, chosen: Rows, values: list[str], key: bytes, counts: dict[str, int]
) -> Alignment:
    return Alignment(name, ids.rows[chosen], key, _order_digest(key, values), counts, ids.rules)


def counts_of(ids: Ids, matched: int) -> dict[str, int]:
    return {
        **asdict(ids.counts),
        "dropped": ids.counts.dropped,
        "offered": len(ids.values),
        "matched": matched,
    }


def _replace(path: Path, content: bytes) -> None:
    """Write beside the file, then rename: a crash leaves the old file or the new one."""
    beside = path.with_name(path.name + ".part")
    beside.write_bytes(content)
    os.replace(beside, path)
