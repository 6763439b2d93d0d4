"""What an audit says of a party's rows: its columns one by one, who is a customer, and the rows that
nobody shares."""

from protoevfl.privacy.levels import LEVELS
from protoevfl.privacy.page_parts import Facts, Section, Table, percent

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
    opening = f"What {facts['party']} sends to {facts['active']}, measured on {facts['what']}."
    kinds = tuple((level, LEVELS[level]) for level in levels)
    return [
        Section("In short", (opening, "; ".join(counts) + ".", f"Used here: {facts['level']}.")),
        Section("Your columns, one by one", (OWN_COLUMNS, Table(("column", *levels), rows))),
        Section("The levels", (Table(("columns =", "what is sent"), kinds),)),
    ]


def most_rebuilt(parties: Facts) -> tuple[str, ...]:
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
