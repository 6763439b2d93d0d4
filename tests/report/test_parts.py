from protoevfl.report.parts import listed, percent, points


def test_numbers_as_a_reader_writes_them() -> None:
    assert percent(0.5, 0) == "50"
    assert percent(None) == "–"
    assert points(-0.00004) == "0.0"  # no minus before a zero
    assert points(-0.034) == "−3.4"


def test_names_in_a_row() -> None:
    assert listed([]) == ""
    assert listed(["a", "b"]) == "a and b"
