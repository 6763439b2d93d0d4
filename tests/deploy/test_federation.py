"""Real processes on this machine: hub, three parties, and those who must not get in."""

import pytest

pytest.importorskip("nvflare")

from protoevfl.errors import UserError
from tests.faults import intruders
from tests.faults.federation import Federation

pytestmark = pytest.mark.xdist_group("federation")


def test_tests_of_one_federation_run_in_one_process(request: pytest.FixtureRequest) -> None:
    """Otherwise each process of the suite sets its companies up again, which takes minutes."""
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@federation")


def test_the_policy_of_a_party_stops_a_job_and_names_it(federation: Federation) -> None:
    assert "party tele refused round 0: refused by policy" in intruders.refused_by_policy(
        federation
    )


def test_plain_text_and_missing_certificates_are_refused(federation: Federation) -> None:
    assert intruders.plaintext(federation)
    assert intruders.no_certificate(federation)


def test_a_job_with_code_is_refused(federation: Federation) -> None:
    assert "BYOC not permitted" in intruders.job_with_code(federation)


def test_a_party_the_hub_does_not_list_cannot_join(federation: Federation) -> None:
    assert "not on its list" in intruders.unlisted(federation)


def test_starting_twice_and_a_used_port_are_one_line(federation: Federation) -> None:
    from protoevfl.deploy import processes

    with pytest.raises(UserError, match="already running"):
        processes.start(federation.kit("hub"))
    other = Federation(federation.folder / "other", port=federation.port)
    with pytest.raises(UserError, match="cannot be used"):
        processes.start(other.kit("hub"))
