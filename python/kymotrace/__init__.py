"""Recordings of kymo, perf, trace-cmd and LTTng as tables.

>>> import kymotrace
>>> recording = kymotrace.open("perf.data")
>>> recording.sql("SELECT name, count(*) AS n FROM ftrace_event GROUP BY name")
"""

from __future__ import annotations

import os
from typing import Any, Iterator, NamedTuple

from ._native import Error, Recording as _Recording, Table, TraceWarning, __version__

__all__ = ["Error", "Event", "Recording", "Table", "TraceWarning", "__version__", "open"]


class Event(NamedTuple):
    """An event of the kernel or of a program."""

    ts: int
    """Time in nanoseconds of the recording's clock."""
    name: str
    """Name with its system: `sched:sched_switch`."""
    cpu: int | None
    tid: int | None
    comm: str | None
    """Last name of the thread."""
    args: dict[str, Any]
    """Fields."""


class Recording(_Recording):
    """Opened recordings, whose tables are read when they are first needed."""

    def events(self, *names: str, programs: bool = False) -> Iterator[Event]:
        """Events in the order of time, all or those of some names (`sched_switch`, or
        `sched:sched_switch`): of the kernel or, with `programs`, of programs."""
        threads = {
            utid: (tid, comm) for utid, tid, comm in self.table("thread", ["utid", "tid", "name"])
        }
        table = "program_event" if programs else "ftrace_event"
        events = self.table(table, ["ts", "system", "name", "cpu", "utid", "arg_set_id"])
        wanted = set(names)
        fields = _Fields(self)
        for ts, system, name, cpu, utid, args in events:
            full = f"{system}:{name}" if system else name
            if not wanted or name in wanted or full in wanted:
                tid, comm = threads.get(utid, (None, None))
                yield Event(ts, full, cpu, tid, comm, fields.of(args))


class _Fields:
    """Fields of events, found by the number of their set."""

    def __init__(self, recording: _Recording) -> None:
        columns = ["arg_set_id", "key", "value_type", "int_value", "real_value", "string_value"]
        self._rows = recording.table("args", columns)
        self._starts: dict[int, int] = {}
        for row, number in enumerate(self._rows.column("arg_set_id")):
            self._starts.setdefault(number, row)

    def of(self, number: int | None) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        row = self._starts.get(number) if number is not None else None
        while row is not None and row < len(self._rows):
            of, key, kind, integer, real, text = self._rows[row]
            if of != number:
                break
            if kind == "bool":
                fields[key] = bool(integer)
            elif kind in ("uint", "pointer") and integer is not None:
                fields[key] = integer & 0xFFFF_FFFF_FFFF_FFFF
            else:
                values = (integer, real, text)
                fields[key] = next((value for value in values if value is not None), None)
            row += 1
        return fields


def open(
    *paths: str | os.PathLike[str],
    memory_limit: int = 4 << 30,
    time_limit: float | None = None,
    symfs: str | os.PathLike[str] | None = None,
) -> Recording:
    """Opens perf.data, trace.dat and CTF; of several recordings each has a `machine_id`.

    `memory_limit` is in bytes, for tables and for queries separately; `time_limit` in seconds, for
    each query; `symfs` is a directory below which binaries are looked for.
    """
    return Recording(*paths, memory_limit=memory_limit, time_limit=time_limit, symfs=symfs)
