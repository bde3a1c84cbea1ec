import pathlib

import pytest

FIXTURES = pathlib.Path(__file__).parents[2] / "crates/kymo/tests/fixtures"


@pytest.fixture
def fixtures() -> pathlib.Path:
    return FIXTURES
