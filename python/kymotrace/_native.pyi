import os
from typing import Any, Iterator, Sequence

__version__: str

class Error(Exception):
    """A recording cannot be read, a query is wrong or refused, or a limit is reached."""

class TraceWarning(UserWarning):
    """What was read may be wrong or incomplete: events were lost, a file is damaged."""

class Table:
    """Rows of a recording or of a query, for any library that reads Arrow."""

    @property
    def column_names(self) -> list[str]: ...
    @property
    def num_rows(self) -> int: ...
    def column(self, name: str) -> list[Any]: ...
    def to_pydict(self) -> dict[str, list[Any]]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> tuple[Any, ...]: ...
    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Recording:
    def __new__(
        cls,
        *paths: str | os.PathLike[str],
        memory_limit: int = ...,
        time_limit: float | None = None,
        symfs: str | os.PathLike[str] | None = None,
    ) -> Recording: ...
    @property
    def paths(self) -> list[str]: ...
    @property
    def notes(self) -> list[tuple[str, str, str | None]]:
        """Warnings and notes on what was read so far: code, fact, advice."""
    @property
    def damaged(self) -> list[str]:
        """Recordings that are damaged: what can be read of them is in the tables."""
    @staticmethod
    def tables() -> list[str]:
        """Names of the tables."""
    @staticmethod
    def columns(table: str) -> list[tuple[str, str, str]]:
        """Columns of a table: name, type and meaning."""
    def table(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        time: tuple[int, int] | None = None,
    ) -> Table:
        """A table; with `time = (from, to)` the rows with `from <= ts < to`, in nanoseconds of the
        recording's clock."""
    def sql(self, query: str) -> Table:
        """Rows of a query in SQL (SQLite's); of several statements those of the last."""
