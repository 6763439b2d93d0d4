from protoevfl.bench.run import RunConfig, prepare
from protoevfl.reproduction import split_only


def test_the_split_of_a_record_is_the_one_every_method_of_that_seed_sees() -> None:
    config = RunConfig(dataset="digits", aligned=100, pool=100)
    first, second = split_only.run(config, [0, 1])
    assert first["split_hash"] == prepare(config, 0, "cpu").split.hash != second["split_hash"]
    assert (first["seed"], second["seed"], first["metrics"]) == (0, 1, {})
    assert len(first["split"]["mid"]) == config.parties
