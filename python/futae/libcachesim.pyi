import enum
from os import PathLike
from typing import Union

from . import Error as Error
from . import simulate as simulate

__all__ = [
    "ARC", "Belady", "Cacheus", "Clock", "Clock2QPlus", "ClockPro", "FIFO", "GDSF", "LFU", "LIRS", "LRU", "LRUK", "LeCaR",
    "ReaderInitParam", "S3FIFO", "SLRU", "Sieve", "SizeAdmissioner", "TraceReader", "TraceType", "TwoQ", "WTinyLFU",
]

class TraceType(enum.Enum):
    UNKNOWN_TRACE = None
    ORACLE_GENERAL_TRACE = "oracle-general"
    CSV_TRACE = "csv"
    PLAIN_TXT_TRACE = "keys"

class ReaderInitParam:
    ignore_obj_size: bool
    cap_at_n_req: int
    time_field: int
    obj_id_field: int
    obj_size_field: int
    def __init__(
        self,
        *,
        ignore_obj_size: bool = False,
        cap_at_n_req: int = -1,
        time_field: int = 0,
        obj_id_field: int = 0,
        obj_size_field: int = 0,
    ) -> None: ...

class TraceReader:
    trace: str
    trace_type: TraceType
    reader_init_params: ReaderInitParam
    def __init__(
        self,
        trace: Union[str, PathLike[str]],
        trace_type: TraceType = ...,
        reader_init_params: Union[ReaderInitParam, None] = None,
    ) -> None: ...

class SizeAdmissioner:
    size_threshold: int
    def __init__(self, size_threshold: int) -> None: ...

class _Cache:
    cache_size: Union[int, float]
    hashpower: int
    admissioner: Union[SizeAdmissioner, None]
    reader: Union[TraceReader, None]
    def __init__(
        self,
        cache_size: Union[int, float],
        *,
        hashpower: int = 24,
        admissioner: Union[SizeAdmissioner, None] = None,
        reader: Union[TraceReader, None] = None,
    ) -> None: ...
    def process_trace(self, reader: TraceReader, start_req: int = 0, max_req: int = -1) -> tuple[float, float]: ...

class FIFO(_Cache): ...
class LRU(_Cache): ...
class LFU(_Cache): ...
class ARC(_Cache): ...
class Clock(_Cache): ...
class Sieve(_Cache): ...
class TwoQ(_Cache): ...
class GDSF(_Cache): ...
class Belady(_Cache): ...
class LRUK(_Cache): ...
class SLRU(_Cache): ...
class S3FIFO(_Cache): ...
class Clock2QPlus(_Cache): ...
class LeCaR(_Cache): ...
class LIRS(_Cache): ...
class WTinyLFU(_Cache): ...
class Cacheus(_Cache): ...
class ClockPro(_Cache): ...
