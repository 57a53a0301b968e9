"""Trace files."""

import array
import collections
import os
import struct
import sys
import warnings

from . import _native
from ._native import Error

# The fields of a record as `src/trace.rs` puts them down.
_FIELDS = [
    ("time_us", "<i8"),
    ("offset_bytes", "<u8"),
    ("length_bytes", "<u8"),
    ("volume", "<u2"),
    ("guest", "<u2"),
    ("is_write", "?"),
]
_RECORD = struct.Struct("<qQQHH?")
# Requests that are read at a time.
_BATCH = 1 << 16

Request = collections.namedtuple("Request", ["time_us", "offset_bytes", "length_bytes", "volume", "guest", "is_write"])
Request.__doc__ = "One request of a trace. ``time_us`` is in microseconds, or None where the trace has no times."


class FutaeWarning(UserWarning):
    """A reason to doubt a result; the command prints it after ``warning:``."""


class Trace:
    """A trace file, in any format and compression that ``futae`` reads.

    >>> trace = futae.Trace("some.csv.zst")
    >>> for request in trace:
    ...     print(request.offset_bytes, request.is_write)

    Each iteration reads the file from its first request. It takes the same memory for files of any length.

    ``path`` is the path of the file; ``format``, ``columns``, ``skip_bad`` and ``block`` are the options of the
    command line, which :func:`simulate` and :func:`mrc` then use.
    """

    def __init__(self, path, *, format=None, columns=None, skip_bad=False, block="4KiB"):
        self.path = os.fsdecode(path)
        self.options = (block, format, columns, skip_bad)
        # So that what is wrong is said here and now.
        self._open()

    def __fspath__(self):
        return self.path

    def __repr__(self):
        return f"futae.Trace({self.path!r})"

    def _open(self, all=False):
        return _native.Reader(self.path, reading(*self.options, None), all)

    def __iter__(self):
        reader = self._open()
        while records := reader.read(_BATCH):
            for time, *rest in _RECORD.iter_unpack(records):
                yield Request(None if time < 0 else time, *rest)
        warn(_remarks(reader))

    def batches(self, requests=_BATCH):
        """Structured NumPy arrays of at most this many requests each, for traces of any length."""
        import numpy

        if requests < 1:
            raise Error(f"requests={requests}: a batch has at least one request")
        reader = self._open()
        while records := reader.read(requests):
            yield numpy.frombuffer(records, dtype=_FIELDS)
        warn(_remarks(reader))

    def to_numpy(self):
        """All requests as one structured NumPy array, which is read-only. A time of -1 stands for none."""
        import numpy

        reader = self._open()
        records = reader.read(2**62)
        warn(_remarks(reader))
        return numpy.frombuffer(records, dtype=_FIELDS)

    def table(self):
        """All requests as a :class:`Table`: columns that NumPy and Arrow use without a copy.

        In addition to those of :class:`Request` it has ``ttl_s`` (seconds) and ``latency_us`` if the trace has lifetimes and latencies; 0 stands
        for none. For a trace of objects with sizes it has ``key`` in place of ``offset_bytes``.
        """
        reader = self._open(all=True)
        table = reader.table()
        warn(_remarks(reader))
        return table

    def info(self):
        """The file's ``format``, ``compression``, ``volumes`` (their names, if it has names) and ``doubts``.

        Reads the whole file, because a volume may come late."""
        reader = self._open()
        while reader.read(_BATCH):
            pass
        format, compression, volumes, _, doubts = reader.facts()
        return {"format": format, "compression": compression, "volumes": volumes, "doubts": doubts}


def tables_of(source):
    """What `source` has as tables of requests, one for each guest; nothing if it is none."""
    several = isinstance(source, (list, tuple)) and bool(source)
    tables = [_table_of(one) for one in (source if several else [source])]
    return tables if all(tables) else []


def _table_of(source):
    """The rows of a table that has Arrow's PyCapsule interface; None if it is none, such as a lone column."""
    is_array = getattr(source, "ndim", None) == 1
    if is_array or not (hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")):
        return None
    try:
        return _native.Rows(source)
    except TypeError:
        return None


def arrays_of(source):
    """What `source` has as arrays, one for each guest; nothing if it is none."""
    several = isinstance(source, (list, tuple)) and bool(source) and all(_is_array(one) for one in source)
    if not several and not _is_array(source):
        return []
    return [_buffer_of(one) for one in (source if several else [source])]


def _is_array(source):
    if isinstance(source, (str, bytes, os.PathLike)):
        return False
    return hasattr(source, "__array__") or hasattr(source, "__arrow_c_array__") or isinstance(source, (memoryview, array.array))


def _buffer_of(source):
    """The same memory as an object with the buffer protocol."""
    # A column of an Arrow table. NumPy copies it even if it lies in one piece.
    if getattr(source, "num_chunks", None) == 1:
        source = source.chunk(0)
    numpy = sys.modules.get("numpy")
    if numpy and isinstance(source, numpy.ma.MaskedArray):
        raise Error("a masked array has missing numbers: give array.compressed()")
    try:
        try:
            format = memoryview(source).format
        except TypeError:
            import numpy

            source = numpy.asarray(source)
            format = memoryview(source).format
    except ValueError as error:
        raise Error(f"an array of block numbers has whole numbers: {error}") from None
    foreign = {"little": ">!", "big": "<"}[sys.byteorder]
    if format[0] in foreign:
        raise Error(
            "an array of block numbers is in another order of bytes than the machine's: give array.astype(array.dtype.newbyteorder('='))"
        )
    return source


def options_of(source, block, format, columns, skip_bad):
    """How `source` is read: as it says itself if it is a :class:`Trace`, or a list of such, or else as the arguments say."""
    several = source if isinstance(source, (list, tuple)) else [source]
    own = [one.options for one in several if isinstance(one, Trace)]
    if not own:
        return "4KiB" if block is None else block, format, columns, skip_bad
    given = {"block": block, "format": format, "columns": columns, "skip_bad": skip_bad or None}
    for name, value in given.items():
        if value is not None:
            raise Error(f"{name}={value!r} is for a path: a Trace says itself how it is read, as in futae.Trace(path, {name}={value!r})")
    if len(own) < len(several) or any(one != own[0] for one in own):
        raise Error("the traces of a list are read in one way: give every one as a futae.Trace, all with the same options")
    return own[0]


def path_of(source):
    """A path or a workload as a text."""
    if not isinstance(source, (str, bytes, os.PathLike)):
        raise Error(f"{source!r} is no source: give a path, a workload, a table, or an array such as numpy.array([1, 2, 1])")
    return os.fsdecode(source)


def reading(block, format, columns, skip_bad, view):
    """How requests are read, as the native half takes it."""
    return {
        "block": str(block),
        "format": format,
        "columns": columns,
        "skip_bad": skip_bad,
        "view": view,
    }


def _remarks(reader):
    _, _, _, skipped, doubts = reader.facts()
    return doubts + [f"{skipped} bad records left out"] * (skipped > 0)


def warn(doubts):
    """Warns the caller of the caller."""
    for doubt in doubts:
        warnings.warn(doubt, FutaeWarning, stacklevel=3)
