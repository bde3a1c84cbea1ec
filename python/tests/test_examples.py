"""The examples, run as a user runs them."""

import pathlib
import re
import subprocess
import sys
from collections import Counter

import pytest

import kymotrace

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
PERF = "perf-data/x86_64"


def run(name, recording):
    result = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", recording], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return [line.split() for line in result.stdout.splitlines()]


def test_examples_are_short():
    for path in EXAMPLES.glob("*.py"):
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        assert len(lines) <= 14, path


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
@pytest.mark.parametrize("recording", ["sched.data", "tracepoints.data", "fp.data"])
def test_every_example_runs_on_every_recording(fixtures, name, recording):
    run(name, fixtures / PERF / recording)


def test_calls_are_counted(fixtures):
    lines = (fixtures / PERF / "tracepoints.script.txt").read_text()
    wanted = Counter(re.findall(r"sys_enter_(\w+):", lines))
    found = run("syscall_counts", fixtures / PERF / "tracepoints.data")
    assert {call: int(count) for count, call in found} == dict(wanted)
    found = run("syscall_counts_by_thread", fixtures / PERF / "tracepoints.data")
    assert {words[1]: int(words[0]) for words in found} == dict(wanted)
    assert run("rw_by_thread", fixtures / PERF / "tracepoints.data")[0][:3] == ["5", "bytes", "write"]


def test_run_times_are_sums_of_runs(fixtures):
    # The runs are those of perf sched timehist: test_recordings.py.
    recording = kymotrace.open(fixtures / PERF / "sched.data")
    tids = dict(recording.table("thread", ["utid", "tid"]))
    total = Counter()
    for utid, dur in recording.table("sched_slice", ["utid", "dur"]):
        if utid != 0 and dur is not None:
            total[tids[utid]] += dur
    lines = run("task_analyzer", fixtures / PERF / "sched.data")
    found = {int(line[-1].strip("[]")): float(line[0]) for line in lines}
    assert len(found) > 20
    assert found == {tid: pytest.approx(dur / 1e6, abs=0.0006) for tid, dur in total.items()}


def test_flame_graphs_have_all_samples(fixtures):
    script = (fixtures / PERF / "fp.script.txt").read_text()
    stacks = run("flamegraph", fixtures / PERF / "fp.data")
    assert sum(int(words[-1]) for words in stacks) == script.count("cpu-clock:u:")
    assert all(words[0].startswith("spin;") for words in stacks)
