"""Names as libCacheSim's Python package has them, so that a script for it needs another import only.

>>> import futae.libcachesim as lcs
>>> reader = lcs.TraceReader("some.oracleGeneral.zst", lcs.TraceType.ORACLE_GENERAL_TRACE)
>>> req_miss_ratio, byte_miss_ratio = lcs.LRU(cache_size=2**30).process_trace(reader)

The simulator is :func:`futae.simulate`, which does more, and does many caches at once. What is not here is refused by Python,
since there is no such name or parameter. Requests of zero bytes, which libCacheSim leaves out, are requests here. The classes are of policies whose counts were compared with libCacheSim 0.3.5:
``futae truth`` prints both, and says why where they differ.
"""

import decimal
import enum
import math
import numbers
import os

from . import Error, simulate

__all__ = [
    "ARC", "Belady", "Cacheus", "Clock", "Clock2QPlus", "ClockPro", "FIFO", "GDSF", "LFU", "LIRS", "LRU", "LRUK", "LeCaR",
    "ReaderInitParam", "S3FIFO", "SLRU", "Sieve", "SizeAdmissioner", "TraceReader", "TraceType", "TwoQ", "WTinyLFU",
]  # fmt: skip


class TraceType(enum.Enum):
    """What a trace is. Of ``UNKNOWN_TRACE`` the data and the name tell."""

    UNKNOWN_TRACE = None
    ORACLE_GENERAL_TRACE = "oracle-general"
    CSV_TRACE = "csv"
    PLAIN_TXT_TRACE = "keys"


class ReaderInitParam:
    """How a trace is read. Columns of a CSV are counted from 1; 0 is none."""

    # A parameter that is not here cannot be set, as it could not have an effect.
    __slots__ = ("cap_at_n_req", "ignore_obj_size", "obj_id_field", "obj_size_field", "time_field")

    # By name only: the first ones of libCacheSim are others.
    def __init__(self, *, ignore_obj_size=False, cap_at_n_req=-1, time_field=0, obj_id_field=0, obj_size_field=0):
        self.ignore_obj_size = ignore_obj_size
        self.cap_at_n_req = cap_at_n_req
        self.time_field = time_field
        self.obj_id_field = obj_id_field
        self.obj_size_field = obj_size_field

    def _columns(self):
        if not self.obj_id_field:
            return None
        fields = [("time", self.time_field, ":s"), ("key", self.obj_id_field, ""), ("length", self.obj_size_field, "")]
        return ",".join(f"{name}={field - 1}{unit}" for name, field, unit in fields if field)


class TraceReader:
    """A trace file, in any format and compression that futae reads."""

    def __init__(self, trace, trace_type=TraceType.UNKNOWN_TRACE, reader_init_params=None):
        self.trace = os.fspath(trace)
        self.trace_type = trace_type
        self.reader_init_params = reader_init_params or ReaderInitParam()


class SizeAdmissioner:
    """Smaller objects are placed; those of this size are not."""

    def __init__(self, size_threshold):
        self.size_threshold = size_threshold


class _Cache:
    """A cache.

    cache_size: in bytes; or a share of the bytes of all objects, such as ``0.1``. If the reader ignores sizes, of objects.
    hashpower: is ignored, since tables grow by themselves.
    admissioner: None or a :class:`SizeAdmissioner`.
    reader: the trace of whose bytes ``cache_size`` is a share. The cache takes this trace and no other.
    """

    _policy = ""

    # By name only: the second one of libCacheSim is a lifetime, which is not here.
    def __init__(self, cache_size, *, hashpower=24, admissioner=None, reader=None):
        if isinstance(cache_size, bool) or not isinstance(cache_size, numbers.Real) or cache_size <= 0:
            raise Error(f"cache_size={cache_size!r} is neither bytes nor a share of all bytes, such as 0.1")
        if admissioner is not None and not isinstance(admissioner, SizeAdmissioner):
            raise Error(f"admissioner={admissioner!r} is no SizeAdmissioner")
        self.cache_size = cache_size
        self.hashpower = hashpower
        self.admissioner = admissioner
        self.reader = reader
        self._is_used = False

    def process_trace(self, reader, start_req=0, max_req=-1):
        """Returns the misses per request, and the bytes missed per byte asked for, of the first ``max_req`` requests; of all if that is not above 0.

        The cache is empty at the beginning, so a cache takes one trace.
        """
        if start_req != 0:
            raise Error(f"start_req={start_req}: a trace is read from its first request")
        if self._is_used:
            raise Error("this cache has done its trace: make another, which is empty at the beginning")
        is_share = not isinstance(self.cache_size, numbers.Integral)
        if is_share and self.reader is not None and self.reader.trace != reader.trace:
            raise Error(f"cache_size={self.cache_size!r} is a share of another trace than that of this reader: give the bytes")
        asked = reader.reader_init_params
        # As in libCacheSim, 0 is no limit either.
        limits = [limit for limit in (max_req, asked.cap_at_n_req) if limit > 0]
        given = {
            "format": None if asked._columns() else reader.trace_type.value,
            "columns": asked._columns(),
            "requests": min(limits, default=None),
            "frame": "dict",
        }
        # All digits, since a size is not read with an exponent.
        size = f"{100 * decimal.Decimal(repr(float(self.cache_size))):f}%" if is_share else self.cache_size
        if asked.ignore_obj_size:
            if self.admissioner is not None:
                raise Error("a SizeAdmissioner needs the sizes that ignore_obj_size leaves out")
            (row,) = simulate(reader.trace, policies=[self._policy], sizes=[size], view="start", **given)
            found = (row["miss_ratio"], row["miss_ratio"])
        else:
            limit = None if self.admissioner is None else max(0, math.ceil(self.admissioner.size_threshold) - 1)
            (row,) = simulate(
                reader.trace, policies=[self._policy], sizes=[size], objects=True, ttl="none", admit_size_max=limit, **given
            )
            found = (row["miss_ratio"], row["byte_miss_ratio"])
        self._is_used = True
        return found


def _cache(name, policy):
    of = {"_policy": policy, "__doc__": f"{_Cache.__doc__.rstrip()}\n\n    The policy is futae's ``{policy}``.\n    ", "__module__": __name__}
    return type(name, (_Cache,), of)


FIFO = _cache("FIFO", "fifo")
LRU = _cache("LRU", "lru")
LFU = _cache("LFU", "lfu-in-cache")
ARC = _cache("ARC", "arc")
Clock = _cache("Clock", "clock")
Sieve = _cache("Sieve", "sieve")
TwoQ = _cache("TwoQ", "2q")
GDSF = _cache("GDSF", "gdsf")
Belady = _cache("Belady", "opt")
LRUK = _cache("LRUK", "lru-k(history=0)")
SLRU = _cache("SLRU", "slru(segments=4,fill=true)")
S3FIFO = _cache("S3FIFO", "s3-fifo(fill_main=true)")
Clock2QPlus = _cache("Clock2QPlus", "clock2q-plus(ghost=0.9)")
LeCaR = _cache("LeCaR", "lecar(keep_uses=false)")
LIRS = _cache("LIRS", "lirs")
WTinyLFU = _cache("WTinyLFU", "w-tinylfu")
Cacheus = _cache("Cacheus", "cacheus")
ClockPro = _cache("ClockPro", "clock-pro")
