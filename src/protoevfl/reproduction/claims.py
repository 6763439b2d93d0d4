"""What the paper claims, claim by claim, judged by records: reproduced, in part, not reproduced, not testable."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.measure import Measured, Store, measure

YES, NO, PARTLY, UNTESTABLE, MISSING = "reproduced", "not reproduced", "in part", "not testable", "not measured yet"
Cells = Sequence[Measured]
Judge = Callable[[Cells], tuple[str, str]]
OURS = "proto_evfl"


@dataclass(frozen=True)
class Claim:
    text: str
    place: str
    experiment: str
    judge: Judge


def mean(cells: Cells, quantity: str = "accuracy", **tags: str) -> float | None:
    """The mean of the one cell with these tags."""
    found = [c for c in cells if all(c.tags.get(k) == v for k, v in tags.items())]
    return found[0].mean(quantity) if found else None


def beats(
    cells: Cells, rival: Sequence[str], over: Sequence[str], where: Mapping[str, str], quantity: str = "accuracy",
    lower: bool = False, key: str = "method", own: str = OURS,
) -> tuple[str, str]:  # fmt: skip
    """Whether ours is better than every rival in every cell that has both."""
    wins, gaps = 0, []
    places = dict.fromkeys(tuple(c.tags.get(n, "") for n in over) for c in cells)
    for place in places:
        at = {**dict(zip(over, place, strict=True)), **where}
        mine = mean(cells, quantity, **{**at, key: own})
        others = [m for m in (mean(cells, quantity, **{**at, key: r}) for r in rival) if m is not None]
        if mine is None or not others:
            continue
        best = min(others) if lower else max(others)
        gaps.append(best - mine if lower else mine - best)
        wins += gaps[-1] > 0
    if not gaps:
        return MISSING, ""
    verdict = YES if wins == len(gaps) else NO if wins == 0 else PARTLY
    unit = " points" if quantity == "accuracy" else ""
    middle = f"ahead of the best of {', '.join(rival)} in {wins} of {len(gaps)} cells"
    return verdict, f"{middle}; difference {_signed(min(gaps))} to {_signed(max(gaps))}{unit}"


def _signed(gap: float) -> str:
    return f"{gap:+.2f}" if abs(gap) < 100 else f"{gap:+.0f}"


def images(setting: str) -> Judge:
    rivals = ("vanilla", "fedhssl", "ss_vfl_c", "ss_vfl_i", "local")
    return lambda cells: beats(cells, rivals, ("dataset", "aligned"), {"setting": setting})


def near_upper_bound(cells: Cells) -> tuple[str, str]:
    gaps = []
    for dataset in dict.fromkeys(c.tags.get("dataset", "") for c in cells):
        top = mean(cells, dataset=dataset, method="upper_bound")
        mine = mean(cells, dataset=dataset, aligned="1000", setting="normal", method=OURS)
        if top is not None and mine is not None:
            gaps.append((dataset, top - mine))
    if not gaps:
        return MISSING, ""
    text = ", ".join(
        f"{dataset} {gap:.1f} points below" if gap >= 0.05 else f"{dataset} level" for dataset, gap in gaps
    )
    return (YES if all(gap <= 1.2 for _, gap in gaps) else NO), f"with 1000 aligned rows: {text}"


def sees_unseen(cells: Cells) -> tuple[str, str]:
    found = [
        c.mean("unseen recall") for c in cells if c.tags.get("method") == OURS and c.tags["setting"] == "zero_shot"
    ]
    values = [v for v in found if v is not None]
    if not values:
        return MISSING, ""
    worst, average = min(values), sum(values) / len(values)
    verdict = YES if worst > 50 else PARTLY if average > 25 else NO
    return (
        verdict,
        f"recall of the unseen classes {average:.1f} % on average over {len(values)} cells, {worst:.1f} % at worst",
    )


def pieces(cells: Cells) -> tuple[str, str]:
    losses = []
    for c in cells:
        whole = mean(cells, dataset=c.tags["dataset"], aligned=c.tags["aligned"], variant=OURS)
        mine = c.mean()
        if c.tags["variant"].startswith("without") and whole is not None and mine is not None:
            losses.append((c.tags["variant"].replace("_", " "), c.tags["dataset"], c.tags["aligned"], whole - mine))
    if not losses:
        return MISSING, ""
    good = sum(loss > 0 for *_, loss in losses)
    verdict = YES if good == len(losses) else NO if good == 0 else PARTLY
    worst = max(losses, key=lambda item: item[3])
    said = f"removing a piece costs accuracy in {good} of {len(losses)} cells; most: {worst[0]} {worst[3]:+.1f} points"
    return verdict, said


def noise(cells: Cells) -> tuple[str, str]:
    falls = []
    for aligned in dict.fromkeys(c.tags["aligned"] for c in cells):
        clean, noisy = (mean(cells, aligned=aligned, kappa=k) for k in ("0", "0.2"))
        if clean is not None and noisy is not None:
            falls.append(clean - noisy)
    if not falls:
        return MISSING, ""
    return (
        YES if min(falls) > 5 else NO
    ), f"kappa 0.2 costs {min(falls):.1f} to {max(falls):.1f} points (paper: 9.5 to 58.5)"


def leaks(cells: Cells) -> tuple[str, str]:
    found = [(f"{c.tags['method']} #{c.tags['aligned']}", c.mean("best attack"), c.mean("canary")) for c in cells]
    known = [(m, a, k) for m, a, k in found if a is not None]
    if not known:
        return MISSING, ""
    said = ", ".join(f"{m} {a:.1f} %" + ("" if k is None else f" (canary {k:.1f} %)") for m, a, k in known)
    paper = [a for m, a, _ in known if m.startswith("proto_evfl paper")]
    return (YES if paper and max(paper) < 15 else NO if paper else PARTLY), f"best attack: {said}"


def close(quantity: str, tolerance: float) -> Judge:
    def judge(cells: Cells) -> tuple[str, str]:
        gaps = [abs(d) for c in cells if (d := c.samples[quantity].difference) is not None]
        if not gaps:
            return MISSING, ""
        good = sum(g <= tolerance for g in gaps)
        verdict = YES if good == len(gaps) else NO if good == 0 else PARTLY
        return verdict, f"{quantity} within {tolerance} of the printed value for {good} of {len(gaps)} parties"

    return judge


def printed_numbers(cells: Cells) -> tuple[str, str]:
    gaps = [
        d for c in cells
        if c.tags.get("method") == "proto_evfl paper" and (d := c.samples["accuracy"].difference) is not None
    ]  # fmt: skip
    if not gaps:
        return MISSING, ""
    good = sum(abs(g) <= 2 for g in gaps)
    verdict = YES if good == len(gaps) else NO if good == 0 else PARTLY
    return verdict, f"the printed settings give {min(gaps):+.1f} to {max(gaps):+.1f} points of the printed accuracy"


def exponent(cells: Cells) -> tuple[str, str]:
    found = [(c.tags["dataset"], c.tags["tau"], c.mean("fitted exponent")) for c in cells]
    said = ", ".join(f"{d} tau {t}: {e:.2f}" for d, t, e in found if e is not None)
    unmet = "assumptions not met: phi > L, local problem solved to accuracy, hyper-gradient; measured, not proven"
    return UNTESTABLE, f"fitted exponents {said}; {unmet}" if said else unmet


CLAIMS = (
    Claim("Proto-EVFL is the most accurate method on images, normal setting", "accuracy on images", "accuracy_images",
          images("normal")),
    Claim("... few-shot", "accuracy on images", "accuracy_images", images("few_shot")),
    Claim("... zero-shot", "accuracy on images", "accuracy_images", images("zero_shot")),
    Claim("Its accuracy with 1000 aligned rows is within 1.2 points of the upper bound", "accuracy on images",
          "accuracy_images", near_upper_bound),
    Claim("The printed settings (preset `paper`) give the printed accuracy", "accuracy on images", "accuracy_images",
          printed_numbers),
    Claim("It recognises unseen classes", "zero-shot", "rare_classes", sees_unseen),
    Claim("It is ahead of FedHSSL for all 20 sets of rare or unseen classes", "rare classes", "rare_classes",
          lambda cells: beats(cells, ("fedhssl",), ("classes", "setting"), {})),
    Claim("It is ahead of FedHSSL on tables", "accuracy on tables", "accuracy_tables",
          lambda cells: beats(cells, ("fedhssl",), ("dataset", "aligned"), {})),
    Claim("... by AUC, which a constant answer cannot win", "not in the paper", "accuracy_tables",
          lambda cells: beats(cells, ("fedhssl", "vanilla"), ("dataset", "aligned"), {}, "AUC")),
    Claim("Every piece adds accuracy", "ablation", "ablation", pieces),
    Claim("Dual transport selects better than cosine, optimal transport, one direction", "selection", "selection",
          lambda cells: beats(cells, ("cosine_similarity", "traditional_ot", "pdtc_single_direction"), ("aligned",), {},
                              key="strategy", own="pdtc")),
    Claim("It needs fewer bytes than SS-VFL and FedHSSL", "communication cost", "communication",
          lambda cells: beats(cells, ("ss_vfl_c", "fedhssl"), ("dataset", "aligned"), {}, "megabytes", lower=True)),
    Claim("It needs the fewest rounds", "communication rounds", "rounds",
          lambda cells: beats(cells, ("vanilla", "ss_vfl_c", "fedhssl"), (), {}, "rounds", lower=True)),
    Claim("It trains fastest", "training time", "training_time",
          lambda cells: beats(cells, ("vanilla", "ss_vfl_c", "fedhssl"), ("aligned",), {}, "seconds", lower=True)),
    Claim("It is ahead of FedHSSL with 6 and 8 parties", "more parties", "parties",
          lambda cells: beats(cells, ("fedhssl",), ("dataset", "parties", "aligned"), {})),
    Claim("Label inference gets 8.89 %: prototypes do not leak labels", "privacy", "label_inference", leaks),
    Claim("Noise on representations costs accuracy", "privacy", "noise_representations", noise),
    Claim("Noise on prototypes costs accuracy", "privacy", "noise_prototypes", noise),
    Claim("The pools are as imbalanced as printed (MID)", "imbalance", "imbalance", close("MID", 0.05)),
    Claim("The squared gradient norm falls as 1/sqrt(T)", "Theorem 1", "gradient_norm", exponent),
)  # fmt: skip


def verdicts(store: Store, quick: bool = False) -> list[tuple[Claim, str, str]]:
    """Every claim with its verdict and what was measured."""
    cells = {name: measure(EXPERIMENTS[name], store, quick) for name in {c.experiment for c in CLAIMS}}
    return [(claim, *claim.judge(cells[claim.experiment])) for claim in CLAIMS]


def markdown(found: Iterable[tuple[Claim, str, str]]) -> str:
    """The claims as a table."""
    lines = ["| claim | verdict | measured | command |", "|---|---|---|---|"]
    for claim, verdict, said in found:
        lines.append(f"| {claim.text} | {verdict} | {said} | `protoevfl reproduce {claim.experiment}` |")
    return "\n".join(lines)
