"""Settings refuse what does not exist."""

import pytest

from protoevfl.errors import UserError
from protoevfl.methods.settings import RoundSettings


@pytest.mark.parametrize("wrong", [{"selection": "best"}, {"update": "sum"}])
def test_an_unknown_name_is_one_clear_line(wrong: dict[str, str]) -> None:
    with pytest.raises(UserError, match="there are"):
        RoundSettings(**wrong)  # type: ignore[arg-type]
