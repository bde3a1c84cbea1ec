"""The Python code of the documentation, run as it stands."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ["python/README.md", "docs/guides/python.md"]


@pytest.mark.parametrize("page", PAGES)
def test_code_of_a_page_runs_and_prints_what_it_says(fixtures, tmp_path, page):
    pytest.importorskip("polars")
    shutil.copy(fixtures / "perf-data/x86_64/sched.data", tmp_path / "perf.data")
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", text, re.M | re.S)
    assert blocks
    script, wanted = "", ""
    for code, output in blocks:
        script += code
        wanted += output
    command = [sys.executable, "-W", "ignore", "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    if wanted:
        assert result.stdout == wanted
