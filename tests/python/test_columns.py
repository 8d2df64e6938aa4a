"""Text for a terminal of 80 columns."""

import pytest

from klat.report.text.columns import WIDTH, wrapped


@pytest.mark.parametrize("figure", ["12.2 s", "5 min", "3.5 %"])
def test_a_line_does_not_end_between_a_number_and_its_unit(figure):
    for before in range(WIDTH - 10, WIDTH):
        lines = wrapped(f"{'x' * before} {figure} more", "", "  ")
        assert any(figure in line for line in lines)
        assert all(len(line) <= WIDTH for line in lines)
