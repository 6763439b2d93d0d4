from protoevfl.reproduction.catalogue import EXPERIMENTS


def test_noise_on_representations_always_has_a_bound() -> None:
    """Noise on rows of any length would guarantee nothing; the bound alone has a line of its
    own."""
    cells = EXPERIMENTS["noise_representations"].cells
    noisy = [c.config.overrides for c in cells if "privacy.embedding_noise" in c.config.overrides]
    assert noisy
    assert all(overrides["privacy.clip"] == 1.0 for overrides in noisy)
    assert [c for c in cells if c.config.overrides == {"privacy.clip": 1.0}]


def test_noise_on_prototypes_is_measured_where_prototypes_are_sent_as_they_are() -> None:
    assert {c.config.preset for c in EXPERIMENTS["noise_prototypes"].cells} == {"undefended"}


def test_every_method_of_label_inference_is_attacked_at_both_sizes() -> None:
    cells = EXPERIMENTS["label_inference"].cells
    sizes = {
        m: {c.config.aligned for c in cells if c.tags["method"] == m}
        for m in {c.tags["method"] for c in cells}
    }
    assert all(found == {200, 1000} for found in sizes.values())
    assert {"proto_evfl one_way", "vanilla", "fedhssl", "one_shot"} <= set(sizes)
