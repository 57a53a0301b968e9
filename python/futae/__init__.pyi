from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, NamedTuple, Protocol, SupportsIndex, Union, final, overload

from numpy import ndarray
from pandas import DataFrame
from _typeshed import ReadableBuffer as Buffer

__version__: str

class Error(ValueError): ...
class FutaeWarning(UserWarning): ...

class Request(NamedTuple):
    time_us: Union[int, None]
    offset_bytes: int
    length_bytes: int
    volume: int
    guest: int
    is_write: bool

class Trace(PathLike[str]):
    path: str
    def __init__(
        self,
        path: Union[str, PathLike[str]],
        *,
        format: Union[str, None] = None,
        columns: Union[str, None] = None,
        skip_bad: bool = False,
        block: Union[str, int] = "4KiB",
    ) -> None: ...
    def __fspath__(self) -> str: ...
    def __iter__(self) -> Iterator[Request]: ...
    def batches(self, requests: int = ...) -> Iterator[ndarray[Any, Any]]: ...
    def to_numpy(self) -> ndarray[Any, Any]: ...
    def table(self) -> Table: ...
    def info(self) -> dict[str, Any]: ...

@final
class Column:
    """One column of a table, an object with the buffer protocol: ``numpy.asarray(column)``."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

@final
class Table:
    """The requests of a trace in columns."""

    @property
    def names(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, name: str, /) -> Column: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

class Policy(Protocol):
    """What a class makes that stands for a policy. ``hit``, ``admit`` and ``remove`` may be absent."""

    def miss(self, blocks: list[int], /) -> object: ...
    def evict(self, incoming: int, /) -> Union[int, None]: ...

class PolicyAhead(Protocol):
    """The same, of one that knows its next victims."""

    def miss(self, blocks: list[int], /) -> object: ...
    def victims(self, count: int, /) -> Sequence[int]: ...
    def evicted(self, blocks: list[int], /) -> object: ...

class Composed:
    """What :func:`policy` returns."""

    def __init__(self, name: _Policy, inner: Sequence[_Policy], parameters: Mapping[str, _Value]) -> None: ...

_Value = Union[str, bool, float]

_Path = Union[str, bytes, PathLike[str], PathLike[bytes]]
_Size = Union[str, SupportsIndex]
_Policy = Union[str, Composed, Callable[[int], Union[Policy, PolicyAhead]]]
_Level = Union[_Policy, tuple[_Policy, _Size]]

class _Stream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...

class _Batch(Protocol):
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

_Source = Union[_Path, Buffer, ndarray[Any, Any], _Stream, _Batch]
_Link = Literal["demote", "notice", "none"]
_Order = Literal["recorded", "together", "turns"]
_WriteMode = Literal["write-through", "write-back"]
_Rows = list[dict[str, Any]]

@overload
def simulate(
    source: Union[_Source, Sequence[_Source]],
    levels: Union[_Level, Sequence[_Level], Sequence[list[_Level]], None] = None,
    sizes: Union[Sequence[_Size], None] = None,
    *,
    policies: Union[Sequence[_Policy], None] = None,
    link: Union[_Link, None] = None,
    write_mode: _WriteMode = "write-through",
    guests: Union[int, None] = None,
    seed: int = 1,
    warmup: Union[int, str, None] = None,
    requests: Union[int, None] = None,
    windows: Union[int, str, None] = None,
    bounds: bool = False,
    order: Union[_Order, None] = None,
    block: Union[str, int, None] = None,
    format: Union[str, None] = None,
    columns: Union[str, None] = None,
    skip_bad: bool = False,
    view: Union[Literal["start", "blocks"], None] = None,
    latency: Union[str, None] = None,
    clients: Union[int, None] = None,
    think: Union[str, int, None] = None,
    objects: bool = False,
    ttl: Union[str, None] = None,
    admit_size_max: Union[str, int, None] = None,
    threads: Union[int, None] = None,
    progress: Union[Callable[[float], object], bool, None] = None,
    frame: Literal["dict"],
) -> _Rows: ...
@overload
def simulate(
    source: Union[_Source, Sequence[_Source]],
    levels: Union[_Level, Sequence[_Level], Sequence[list[_Level]], None] = None,
    sizes: Union[Sequence[_Size], None] = None,
    *,
    policies: Union[Sequence[_Policy], None] = None,
    link: Union[_Link, None] = None,
    write_mode: _WriteMode = "write-through",
    guests: Union[int, None] = None,
    seed: int = 1,
    warmup: Union[int, str, None] = None,
    requests: Union[int, None] = None,
    windows: Union[int, str, None] = None,
    bounds: bool = False,
    order: Union[_Order, None] = None,
    block: Union[str, int, None] = None,
    format: Union[str, None] = None,
    columns: Union[str, None] = None,
    skip_bad: bool = False,
    view: Union[Literal["start", "blocks"], None] = None,
    latency: Union[str, None] = None,
    clients: Union[int, None] = None,
    think: Union[str, int, None] = None,
    objects: bool = False,
    ttl: Union[str, None] = None,
    admit_size_max: Union[str, int, None] = None,
    threads: Union[int, None] = None,
    progress: Union[Callable[[float], object], bool, None] = None,
    frame: Literal["report"],
) -> dict[str, Any]: ...
@overload
def simulate(
    source: Union[_Source, Sequence[_Source]],
    levels: Union[_Level, Sequence[_Level], Sequence[list[_Level]], None] = None,
    sizes: Union[Sequence[_Size], None] = None,
    *,
    policies: Union[Sequence[_Policy], None] = None,
    link: Union[_Link, None] = None,
    write_mode: _WriteMode = "write-through",
    guests: Union[int, None] = None,
    seed: int = 1,
    warmup: Union[int, str, None] = None,
    requests: Union[int, None] = None,
    windows: Union[int, str, None] = None,
    bounds: bool = False,
    order: Union[_Order, None] = None,
    block: Union[str, int, None] = None,
    format: Union[str, None] = None,
    columns: Union[str, None] = None,
    skip_bad: bool = False,
    view: Union[Literal["start", "blocks"], None] = None,
    latency: Union[str, None] = None,
    clients: Union[int, None] = None,
    think: Union[str, int, None] = None,
    objects: bool = False,
    ttl: Union[str, None] = None,
    admit_size_max: Union[str, int, None] = None,
    threads: Union[int, None] = None,
    progress: Union[Callable[[float], object], bool, None] = None,
    frame: Union[Literal["pandas", "polars"], None] = None,
) -> DataFrame: ...
def policy(name: _Policy, *inner: _Policy, **parameters: _Value) -> Composed: ...
def policies(frame: Union[Literal["pandas", "polars", "dict"], None] = None) -> Any: ...
def mrc(
    source: _Source,
    policy: str = "lru",
    *,
    sizes: Union[Sequence[_Size], None] = None,
    points: int = 40,
    exact: bool = False,
    shards: Union[float, None] = None,
    shards_blocks: Union[int, None] = None,
    aet: Union[float, None] = None,
    kosmo: Union[float, None] = None,
    kosmo_blocks: Union[int, None] = None,
    mini: Union[float, None] = None,
    repeats: int = 1,
    requests: Union[int, None] = None,
    seed: int = 1,
    block: Union[str, int, None] = None,
    format: Union[str, None] = None,
    columns: Union[str, None] = None,
    skip_bad: bool = False,
    view: Union[Literal["start", "blocks"], None] = None,
    progress: Union[Callable[[float], object], bool, None] = None,
    frame: Union[Literal["pandas", "polars", "dict", "report"], None] = None,
) -> Any: ...
def locality(
    source: _Source,
    levels: Union[_Level, Sequence[_Level]] = (),
    *,
    link: Union[_Link, None] = None,
    warmup: Union[int, None] = None,
    requests: Union[int, None] = None,
    bins: int = 60,
    log: bool = False,
    seed: int = 1,
    block: Union[str, int, None] = None,
    format: Union[str, None] = None,
    columns: Union[str, None] = None,
    skip_bad: bool = False,
    view: Union[Literal["start", "blocks"], None] = None,
    progress: Union[Callable[[float], object], bool, None] = None,
    frame: Union[Literal["pandas", "polars", "dict", "report"], None] = None,
) -> Any: ...
def sweep(
    plan: Union[_Path, dict[str, Any]],
    *,
    out: Union[_Path, None] = None,
    client: Any = None,
    threads: Union[int, None] = None,
    summary: bool = False,
    progress: Union[Callable[[float], object], bool, None] = None,
    frame: Union[Literal["pandas", "polars", "dict"], None] = None,
) -> Any: ...
