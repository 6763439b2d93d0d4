"""The audit in words, for a data-protection officer: facts of `audit.audit` as sections of
sentences and tables."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protoevfl import messages
from protoevfl.privacy.ledger import PROTECTS
from protoevfl.privacy.levels import LEVELS

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """Column heads and lines of plain text."""

    heads: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    title: str
    parts: tuple[str | Table, ...]


RATES = (
    "Class rates cross in both directions. Up: each party's estimate of how its own unaligned rows "
    "spread over the classes, made of its columns and of the prototypes it was shown. Down: their "
    "mean; where labels are guarded, without the label owner's own estimate, which is made with "
    "exact prototypes. The rates carry no noise: about labels they say nothing that noisy "
    "prototypes did not say, but no proof covers the rows they come from. They are a few numbers "
    "about a whole table, not about single rows."
)
FEATURES = (
    "The parties hold tables and the label owner uses the label of every row it has: it asked for "
    "encoded columns (SendFeatures). It can read every number and category of the shared rows, and "
    "of the rows to be predicted, nearly exactly. Labels, row ids and model weights do not cross."
)
FEW = (
    "Of each shared row, and of each row to be predicted, the parties sent a few rounded numbers in "
    'place of their columns (columns = "few"); how much these tell of each column is measured below. '
    "Labels, row ids and model weights do not cross."
)
SEALED = (
    "Of each shared row, and of each row to be predicted, the parties sent one score per class in a "
    'few steps (columns = "sealed"); how much these tell of each column is measured below. OpenLabels '
    "stands for SealedLabels, SealedSums and OpenedSums: a simulation sums randomised labels without "
    "encryption, which gives the same numbers with the same noise, and the attacks see no more than "
    "those sums. Exact labels, columns, row ids and model weights do not cross."
)
GRADIENTS = (
    "Gradients are made of labels, row by row: whoever receives them can read the labels off them."
)
COLUMNS = (
    "Each column as the label owner can rebuild it. It is taken to know four fifths of the rows with "
    "their columns, learns a decoder (the best of linear, kernel and nearest rows) and rebuilds the "
    "last fifth. 0 is no better than guessing, 1 is exact: the share of a number's variance (R²), and "
    "for categories the balanced accuracy from chance (0) to certainty (1). Beside it, what the label "
    "alone tells."
)
POOLS = (
    "Statistics of rows that nobody shares were sent: means and variances of groups. An attacker who "
    "has a row asks whether it lies near one of the means (50 % is a coin), and whether a mean is a "
    "row."
)
OWN_COLUMNS = (
    "A decoder learnt from four fifths of the rows rebuilds the last fifth from what would be sent "
    "of them. 0: no better than guessing; 1: exact (R² of a number, balanced accuracy of a "
    "category from chance to certainty). Rows sent again with other settings add up, which these "
    "figures do not count."
)
WAYS = ("from what it sends", "from the label alone")
NOTHING_SENT = "No message made of labels was sent: there is nothing in it about single people."
THREATS = {
    "passive": "one party that follows the protocol and studies what it received",
    "malicious": "one party that sends made-up embeddings to draw labels out",
    "colluding": "all passive parties together",
}


def percent(value: float | None, half: float | None = None) -> str:
    """A fraction as a percentage, with its interval where there is one.

    >>> percent(0.1234, 0.01), percent(None)
    ('12.3 ± 1.0 %', '-')
    """
    if value is None:
        return "-"
    spread = "" if half is None or half != half else f" ± {100 * half:.1f}"
    return f"{100 * value:.1f}{spread} %"


def points(value: float, half: float | None = None) -> str:
    """A difference of fractions in points, with its interval where there is one.

    >>> points(0.012), points(-0.0001, 0.02)
    ('+1.2', '+0.0 ± 2.0')
    """
    spread = "" if half is None or half != half else f" ± {100 * half:.1f}"
    return f"{round(100 * value, 1) + 0.0:+.1f}{spread}"


def sections(facts: Facts) -> list[Section]:
    """The whole report, or that of one party's half."""
    if "levels" in facts:
        return own_half(facts)
    return [
        Section("In short", summary(facts)),
        Section("What crosses", crossing(facts)),
        Section("What can be inferred about labels", inferred(facts)),
        Section("Does it give single people away?", canary(facts)),
        Section("What can be inferred about a party's columns", columns(facts)),
        Section("Who is a customer, and the rows nobody shares", members(facts)),
        Section("What is guaranteed", guarantee(facts)),
        Section("What it costs", cost(facts)),
        Section("All attacks", every_attack(facts)),
        Section("Settings", settings(facts)),
    ]


def own_half(facts: Facts) -> list[Section]:
    """What one party gives away, measured with its own rows alone."""
    levels = list(facts["levels"])
    columns = list(facts["levels"][levels[0]])
    rows = tuple(
        (column, *(f"{facts['levels'][level].get(column, 0.0):.2f}" for level in levels))
        for column in columns
    )
    counts = [
        f"{level}: {sum(score > 0.5 for score in scores.values())} of {len(scores)} columns are "
        "rebuilt more than halfway"
        for level, scores in facts["levels"].items()
    ]
    said = f"What {facts['party']} sends to {facts['active']}, measured on {facts['what']}."
    kinds = tuple((level, LEVELS[level]) for level in levels)
    return [
        Section("In short", (said, "; ".join(counts) + ".", f"Used here: {facts['level']}.")),
        Section("Your columns, one by one", (OWN_COLUMNS, Table(("column", *levels), rows))),
        Section("The levels", (Table(("columns =", "what is sent"), kinds),)),
    ]


def worst(facts: Facts, part: str = "findings", threat: str | None = None) -> Facts:
    findings = [f for f in facts[part] if threat is None or f["threat"] == threat]
    if part == "canary":  # what was sent comes before what was only guessed
        return max(findings, key=lambda f: (f["worst"]["communicates"], f["worst"]["accuracy"]))
    return max(findings, key=lambda f: float(f["advantage"]))


def summary(facts: Facts) -> tuple[str | Table, ...]:
    f, c, use = worst(facts), worst(facts, "canary"), facts["utility"]
    drop = use["undefended"]["accuracy"][0] - use["as it is"]["accuracy"][0]
    found, silent = (
        percent(f["worst"]["accuracy"], f["worst"]["half"]),
        percent(f["yardstick"]["accuracy"]),
    )
    return (
        f"{facts['parties']} parties share {facts['rows']} labelled rows of {facts['classes']} "
        f"classes; {_runs(len(facts['seeds']))} attacked.",
        f"The attack that gains most from the messages ({f['worst']['attack']}; "
        f"{THREATS[f['threat']]}, {f['known']} known labels a class) finds {found} of the labels. "
        f"Without any message {silent} can be guessed ({f['yardstick']['attack']}): the messages "
        f"are worth {points(f['advantage'])} points to the attacker.",
        "With labels that have nothing to do with the rows, the best attack is right for "
        f"{percent(c['worst']['accuracy'])} (chance: {percent(c['chance'])}): that is what the "
        "messages say about single people."
        if c["worst"]["communicates"]
        else NOTHING_SENT,
        *_most_rebuilt(facts.get("columns") or {}),
        f"The joint model is right for {percent(*use['as it is']['accuracy'])} of new rows; "
        f"without defences {percent(*use['undefended']['accuracy'])} ({points(-drop)} points by "
        f"the defences), with nothing sent down {percent(*use['one-way']['accuracy'])}.",
    )


def _most_rebuilt(parties: Facts) -> tuple[str, ...]:
    """The column that is given away most, and how many are given away more than halfway."""
    scores = {
        (party, column): ways[WAYS[0]]
        for party, of_party in parties.items()
        for column, ways in of_party.items()
    }
    if not scores:
        return ()
    (party, column), most = max(scores.items(), key=lambda item: item[1])
    half = sum(score > 0.5 for score in scores.values())
    return (
        f"The label owner can rebuild {half} of {len(scores)} columns of the other parties more "
        f"than halfway; best '{column}' of {party} ({most:.2f} of 1).",
    )


def _runs(count: int) -> str:
    return "the run was" if count == 1 else f"{count} simulated runs were"


def kind_of(message: str) -> str:
    """The kind of a message type by its name; "" for one that this version does not know."""
    return str(getattr(getattr(messages, message, None), "kind", ""))


def meaning(message: str) -> str:
    """What a type of message is, in its own words; "" for one that this version does not know."""
    return " ".join((inspect.getdoc(getattr(messages, message, None)) or "").split())


def labels_sent(traffic: Facts) -> bool:
    """Whether a message made of labels went to a party; plain requests are made of nothing."""
    by_type = traffic["by_type"].items()
    return any(sizes["down"] and kind_of(name) != "control" for name, sizes in by_type)


def crossing(facts: Facts) -> tuple[str | Table, ...]:
    rows = []
    for kind, sizes in facts["crossed"]["by_type"].items():
        way = " and ".join(
            w
            for w, n in (("to the parties", sizes["down"]), ("to the label owner", sizes["up"]))
            if n
        )
        rows.append((kind, way, f"{sizes['down'] + sizes['up']:,}", meaning(kind)))
    total = f"{facts['crossed']['up']:,} bytes to the label owner, {facts['crossed']['down']:,} bytes to the parties."
    return (
        Table(("message", "direction", "bytes, all parties", "what it is"), tuple(rows)),
        total,
        *_notes(facts),
    )


def _notes(facts: Facts) -> tuple[str, ...]:
    """What is to be said about the kinds of messages that crossed."""
    kinds = {kind_of(name) for name in facts["crossed"]["by_type"]}
    said = []
    if "gradients" in kinds:
        said.append(GRADIENTS)
    if "parameters" in kinds:
        said.append("Parameters of networks cross, trained on all rows of a party.")
    if "Learned" in facts["crossed"]["by_type"]:
        said.append(RATES)
    # `SendFeatures` has no bytes to count
    if facts["config"].get("labels") == "all" and facts.get("columns"):
        said.append({"open": FEATURES, "few": FEW, "sealed": SEALED}[facts["level"]])
    elif not kinds & {"gradients", "parameters"}:
        said.append(
            "Raw columns, labels, row ids and model weights are not among the message types of "
            "Proto-EVFL."
        )
    return tuple(said)


def inferred(facts: Facts) -> tuple[str | Table, ...]:
    rows = tuple(
        (
            f["threat"], str(f["known"]), f["worst"]["attack"],
            percent(f["worst"]["accuracy"], f["worst"]["half"]),
            f"{percent(f['yardstick']['accuracy'])} ({f['yardstick']['attack']})",
            points(f["advantage"], f["advantage_half"]),
        )
        for f in facts["findings"]
    )  # fmt: skip
    heads = (
        "attacker",
        "known labels a class",
        "worst attack",
        "labels found",
        "without any message",
        "advantage",
    )
    who = "Attackers: " + "; ".join(f"{name}: {text}" for name, text in THREATS.items()) + "."
    how = "Each line is the maximum over attacks and rounds of the mean over runs and parties; ± is a 95 % interval."
    return (Table(heads, rows), who, how)


def canary(facts: Facts) -> tuple[str | Table, ...]:
    heads = ("attacker", "best attack", "labels found", "chance")
    rows = tuple(
        (
            f["threat"],
            f["worst"]["attack"],
            percent(f["worst"]["accuracy"], f["worst"]["half"]),
            percent(f["chance"]),
        )
        for f in facts["canary"]
        if f["worst"]["communicates"]
    )
    if not rows:
        return (NOTHING_SENT,)
    text = (
        "The labels were shuffled over the rows before the run. Rows then say nothing about "
        "labels, so whatever is found above chance was carried by the messages about single rows."
    )
    return (text, Table(heads, rows))


def columns(facts: Facts) -> tuple[str | Table, ...]:
    if not facts["inversion"]:
        return ("No embeddings of whole row sets crossed.",)
    if facts.get("columns"):
        return _columns(facts["columns"])
    heads = ("guess of the row", "MSE", "PSNR", "SSIM")
    rows = tuple(
        (name, f"{r['mse']:.4f}", f"{r['psnr']:.1f}", f"{r['ssim']:.2f}" if "ssim" in r else "-")
        for name, r in facts["inversion"].items()
    )
    text = (
        "The label owner is taken to hold half of the rows of the first passive party together "
        "with their embeddings and trains a decoder for the other half. Lower MSE and higher SSIM "
        "mean more is revealed. Embeddings are not anonymous: who may hold them must be agreed on."
    )
    return (text, Table(heads, rows))


def _columns(parties: Facts) -> tuple[str | Table, ...]:
    """Every column of every party."""
    rows = tuple(
        (party, column, *(f"{ways.get(way, 0.0):.2f}" for way in WAYS))
        for party, of_party in parties.items()
        for column, ways in of_party.items()
    )
    return (COLUMNS, Table(("party", "column", *WAYS), rows))


def members(facts: Facts) -> tuple[str | Table, ...]:
    """What the alignment tells, and what the statistics of unshared rows tell."""
    shared = (
        f"Both sides of a pair know which of their customers they share (here {facts['rows']} "
        "labelled rows that all parties have): the private alignment tells that and nothing about "
        "other ids. Whoever asks with ids it has made up learns which of them exist: the number of "
        "ids and of alignments is limited by each party's policy."
    )
    pools = facts.get("pools") or {}
    if not pools:
        return (shared, "Of rows that nobody shares nothing was sent.")
    rows = tuple(
        (party, f"{one['means']:.0f}", percent(one["auc"]), percent(one["matched"]))
        for party, one in pools.items()
    )
    heads = ("party", "means sent", "a member told from another row", "means that are a row")
    return (shared, POOLS, Table(heads, rows))


def guarantee(facts: Facts) -> tuple[str | Table, ...]:
    lines: list[str | Table] = []
    if not labels_sent(facts["crossed"]):
        lines.append(
            "Nothing made of labels leaves the label owner during training: nothing about labels "
            "can be learnt."
        )
    elif facts["guess_bound"] < 1:
        lines.append(
            "Whatever a party does, and even if it knew all other labels, it guesses a given label "
            f"right with at most {percent(facts['guess_bound'])} (chance "
            f"{percent(1 / facts['classes'])}, classes taken to be equally likely); all passive "
            f"parties together with at most {percent(facts['coalition_guess_bound'])}."
        )
        if facts.get("honest_bounds") and facts["honest_bounds"][0] < facts["guess_bound"]:
            alone, together = (percent(bound) for bound in facts["honest_bounds"])
            lines.append(
                "A party that keeps to the protocol sums rows of bounded length and gets the label "
                f"owner's noise on them: it guesses right with at most {alone}, all passive parties "
                f"together with at most {together}. A party that makes its rows up is held by the "
                "bound above alone."
            )
    else:
        lines.append(
            "There is no guarantee for labels: what holds back an attacker here is only what is "
            "measured above."
        )
    entries = [
        (
            str(e["party"]),
            e["direction"],
            str(e["releases"]),
            f"{e['epsilon']:.2f}",
            f"{e['delta']:g}",
            e["protects"],
        )
        for e in facts["ledger"]
    ]
    if entries:
        lines.append(
            Table(
                ("party", "direction", "releases", "epsilon", "delta", "protects"), tuple(entries)
            )
        )
    if not any(e["direction"] == "up" for e in facts["ledger"]):
        lines.append(
            f"There is no guarantee for {PROTECTS['up'].split(',')[0]}: embeddings carry no noise."
        )
    if facts["coalition_epsilon"] is not None:
        lines.append(
            f"All passive parties together: epsilon {facts['coalition_epsilon']:.2f} for labels."
        )
    if "Learned" in facts["crossed"]["by_type"]:
        lines.append(
            "Not covered by any guarantee: the class rates that parties estimate for their rows "
            "and send up."
        )
    lines.append(
        "Taken to be public: which classes exist and are shown, how many rows are shared, the "
        "settings below."
    )
    return tuple(lines)


def cost(facts: Facts) -> tuple[str | Table, ...]:
    def pseudo(use: Facts) -> str:
        if use["pseudo_labels"] is None:
            return "none: nothing is told"
        return percent(*use["pseudo_labels"]) + ("" if use["useful"] else " (not useful)")

    rows = tuple(
        (name, percent(*use["accuracy"]), pseudo(use), f"{use['bytes_down']:,}")
        for name, use in facts["utility"].items()
    )
    heads = (
        "run",
        "accuracy of the joint model",
        "a party alone, on its own rows",
        "bytes sent to parties",
    )
    return (Table(heads, rows),)


def every_attack(facts: Facts) -> tuple[str | Table, ...]:
    rows = tuple(
        (f["threat"], str(f["known"]), line["attack"], "yes" if line["communicates"] else "no",
         percent(line["accuracy"], line["half"]), percent(line["matched"]), f"{line['nmi']:.2f}",
         f"{line['classes']:.1f}")
        for f in facts["findings"] for line in sorted(f["lines"], key=_by_accuracy)
    )  # fmt: skip
    heads = (
        "attacker",
        "k",
        "attack",
        "uses messages",
        "accuracy",
        "best matching of names",
        "NMI",
        "classes named",
    )
    return (Table(heads, rows),)


def _by_accuracy(line: Facts) -> float:
    return -float(line["accuracy"])


def settings(facts: Facts) -> tuple[str | Table, ...]:
    plain: Sequence[tuple[str, str]] = [
        (f"privacy.{n}", str(v)) for n, v in facts["privacy"].items()
    ]
    config = [(n, str(v)) for n, v in facts["config"].items()]
    return (Table(("setting", "value"), (*config, *plain, ("seeds", str(facts["seeds"])))),)
