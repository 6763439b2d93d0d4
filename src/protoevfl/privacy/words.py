"""The audit in words, for a data-protection officer: facts of `audit.audit` as sections of
sentences and tables."""

import inspect
from collections.abc import Sequence

from protoevfl import messages
from protoevfl.privacy.column_words import columns, members, most_rebuilt, own_half
from protoevfl.privacy.ledger import PROTECTS
from protoevfl.privacy.page_parts import Facts, Section, Table, percent, points

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
NOTHING_SENT = "No message made of labels was sent: there is nothing in it about single people."
THREATS = {
    "passive": "one party that follows the protocol and studies what it received",
    "malicious": "one party that sends made-up embeddings to draw labels out",
    "colluding": "all passive parties together",
}


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


def worst(facts: Facts, part: str = "findings", threat: str | None = None) -> Facts:
    findings = [f for f in facts[part] if threat is None or f["threat"] == threat]
    if part == "canary":  # what was sent comes before what was only guessed
        return max(findings, key=lambda f: (f["worst"]["communicates"], f["worst"]["accuracy"]))
    return max(findings, key=lambda f: float(f["advantage"]))


def summary(facts: Facts) -> tuple[str | Table, ...]:
    f, c, use = worst(facts), worst(facts, "canary"), facts["utility"]
    drop = use["undefended"]["accuracy"][0] - use["as it is"]["accuracy"][0]
    by_attack = percent(f["worst"]["accuracy"], f["worst"]["half"])
    by_guessing = percent(f["yardstick"]["accuracy"])
    return (
        f"{facts['parties']} parties share {facts['rows']} labelled rows of {facts['classes']} "
        f"classes; {_runs(len(facts['seeds']))} attacked.",
        f"The attack that gains most from the messages ({f['worst']['attack']}; "
        f"{THREATS[f['threat']]}, {f['known']} known labels per class) finds {by_attack} of the labels. "
        f"Without any message {by_guessing} can be guessed ({f['yardstick']['attack']}): the messages "
        f"are worth {points(f['advantage'])} points to the attacker.",
        "With labels that have nothing to do with the rows, the best attack is right for "
        f"{percent(c['worst']['accuracy'])} (chance: {percent(c['chance'])}): that is what the "
        "messages say about single people."
        if c["worst"]["communicates"]
        else NOTHING_SENT,
        *most_rebuilt(facts.get("columns") or {}),
        f"The joint model is right for {percent(*use['as it is']['accuracy'])} of new rows; "
        f"without defences {percent(*use['undefended']['accuracy'])} ({points(-drop)} points by "
        f"the defences), with nothing sent down {percent(*use['one-way']['accuracy'])}.",
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
    notes = []
    if "gradients" in kinds:
        notes.append(GRADIENTS)
    if "parameters" in kinds:
        notes.append("Parameters of networks cross, trained on all rows of a party.")
    if "Learned" in facts["crossed"]["by_type"]:
        notes.append(RATES)
    # `SendFeatures` has no bytes to count
    if facts["config"].get("labels") == "all" and facts.get("columns"):
        notes.append({"open": FEATURES, "few": FEW, "sealed": SEALED}[facts["level"]])
    elif not kinds & {"gradients", "parameters"}:
        notes.append(
            "Raw columns, labels, row ids and model weights are not among the message types of "
            "Proto-EVFL."
        )
    return tuple(notes)


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
        "known labels per class",
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
