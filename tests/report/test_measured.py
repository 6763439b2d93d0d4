import torch

from tests.report.made_up import made_up


def test_of_two_classes_the_rarer_one_is_drawn_and_of_more_the_commonest() -> None:
    assert [made_up().counts[z] for z in made_up().drawn] == [min(made_up().counts)]
    several = made_up(tuple("abcde"))
    assert len(several.drawn) == 3
    assert several.counts[several.drawn[0]] == max(several.counts)


def test_scores_of_a_class_against_the_rest() -> None:
    measured = made_up(("a", "b", "c"))
    joint, alone, hits = measured.scores(2)
    assert torch.equal(torch.from_numpy(hits), measured.labels == 2)
    assert joint.shape == alone.shape == hits.shape


def test_without_an_own_model_the_comparison_says_so() -> None:
    measured = made_up(has_own_model=False)
    assert measured.alone_name == "only bank's columns"
    assert measured.gain["difference"] > 0
    assert made_up().alone_name == "bank alone"


def test_who_sent_nothing_is_away() -> None:
    measured = made_up()
    assert measured.away == []
    del measured.rows.embeddings[1]
    assert measured.away == ["insurer"]
