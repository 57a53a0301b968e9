"""futae: hierarchies of caches under traces and workloads.

The numbers are those of the command ``futae``, to the last bit: both are the same simulator.

>>> import futae
>>> rows = futae.simulate("loop:16MiB", levels=["lru:5000blocks"], frame="dict")
>>> rows[0]["hit_ratio"]
1.0
"""

import json as _json
import os as _os

from . import _native
from ._checks import check as _check_settings
from ._frames import check_frame as _check_frame
from ._frames import frame_of as _frame_of
from ._frames import rows_of as _rows_of
from ._native import Column, Error, Table, __version__
from ._policies import Composed
from ._policies import Named as _Named
from ._progress import shown as _shown
from ._sweep import sweep
from ._traces import FutaeWarning, Request, Trace
from ._traces import arrays_of as _arrays_of
from ._traces import options_of as _options_of
from ._traces import path_of as _path_of
from ._traces import reading as _reading
from ._traces import tables_of as _tables_of
from ._traces import warn as _warn

__all__ = ["Column", "Composed", "Error", "FutaeWarning", "Request", "Table", "Trace", "__version__", "locality", "mrc", "policies", "policy", "simulate", "sweep"]


def simulate(
    source,
    levels=None,
    sizes=None,
    *,
    policies=None,
    link=None,
    write_mode="write-through",
    guests=None,
    seed=1,
    warmup=None,
    requests=None,
    windows=None,
    bounds=False,
    order=None,
    block=None,
    format=None,
    columns=None,
    skip_bad=False,
    view=None,
    latency=None,
    clients=None,
    think=None,
    objects=False,
    ttl=None,
    admit_size_max=None,
    threads=None,
    progress=None,
    frame=None,
):
    """Simulates caches under a trace or a workload, and returns a frame with a row for each run.

    The arguments are the options of ``futae sim``, and the columns the keys of ``futae sim --json``.

    source: the path of a trace, a :class:`Trace`, a workload such as ``"zipf(1.0):1GiB"``, or an array of block numbers, which is not
        copied: of NumPy, pandas, polars or Arrow, or any object with Python's buffer protocol. Or a table of requests with Arrow's
        PyCapsule interface: of pyarrow, polars or pandas. A list has one source for each guest.
    levels: top down, each ``"POLICY:SIZE"`` or ``("POLICY", SIZE)``. A list of lists has one run for each list. A policy may also be
        a class (see below) or what :func:`policy` returns, also in ``policies``.
    sizes: sizes of the levels that name none; one run for each size.
    policies: policies of a single level; one run for each policy and each of ``sizes``.
    link: ``"demote"``, ``"notice"`` or ``"none"``: what a level sends to the level below when it evicts a block.
    write_mode: ``"write-through"`` or ``"write-back"``.
    guests: the number of guests that run the one workload.
    seed: the seed of all randomness.
    warmup, requests: the numbers of requests before counting begins, and that are counted. The warm-up of a trace may also be a share
        (``"10%"``) or a time (``"1h"``).
    windows: also report the results over time: in this many windows with equal numbers of requests, or in windows of a trace's time
        (``"15min"``). They are the column ``windows``, a list of dicts.
    bounds: for traces, also report bounds of the hit ratio of optimal caches of these sizes, in the column ``bounds``.
    order: the order of the requests of guests with traces: ``"recorded"``, ``"together"`` or ``"turns"``.
    block: bytes of a block; the default is ``"4KiB"``.
    format, columns, skip_bad, view: how a trace is read. A :class:`Trace` has ``block`` and the first three of these itself.
    latency: such as ``"upper=1us,lower=10us,store=100us,link=5us"``; adds columns of access times. With a queueing place such as
        ``"store=exp(100us)*8"`` requests wait for each other, and the column ``latencies`` has the distribution of their times.
    clients: with ``latency``, keep this many requests in flight, instead of the times of the trace.
    think: with ``latency``, each guest sends its next request this long after the answer to its previous one: ``"recorded"``, or a time such as
        ``"1ms"`` or ``"0"``. The column ``pace_by_guest`` has the time that each guest took.
    objects: simulate objects that differ in size. Sizes of caches are then bytes, or shares of the bytes of all objects.
    ttl: with ``objects``, the lifetime of an object, such as ``"1h"``, or ``"none"``.
    admit_size_max: with ``objects``, do not place larger ones, such as ``"1MiB"``.
    threads: the default is one for each processor.
    progress: True shows a bar, of tqdm if that is installed. A function is called several times a second with the fraction that is done, from 0 to 1.
    frame: ``"pandas"``, ``"polars"``, ``"dict"`` (a list with a dict for each row) or ``"report"`` (what
        ``futae sim --json`` prints). The default is pandas if it is installed, else polars, else ``"dict"``.

    A size is a text as on the command line (``"1%"``, ``"1GiB"``, ``"1000blocks"``) or a number of blocks; with ``objects``, of bytes.

    ``hit_ratio`` is that of the whole run: the share of requests that some level served. With one level the keys of the
    level are columns. With several, those of the first level begin with ``level_0_``, and so on.

    A policy can be a class, or any callable that returns an object for a number of blocks, the capacity of the cache. It is called once
    before the run, with 16, to check the methods of the object. Blocks are
    numbers from 0 in the order of their first requests, not the numbers of the trace. The object has the methods ``miss(blocks)``: these blocks were placed, in this order; and ``evict(incoming)``: returns the
    block to evict, and removes it, or returns None to evict none and not place ``incoming``. Optional are ``hit(blocks)``: these resident blocks were requested, in this order;
    ``admit(block)``: whether to place a block that is not resident; and ``remove(block)``: a block left without an eviction. ``hit`` and
    ``miss`` get many blocks at once, just before the next answer is needed, so they do not get the last blocks of a run. In place of ``evict`` the object may have
    ``victims(count)``: the next victims in their order, at least one and at most ``count``, without removing any; one that ``hit`` is told of before its turn is skipped;
    and ``evicted(blocks)``: these were evicted. A wrong answer or an exception raises ``futae.Error``.

    Raises ``futae.Error``, a ``ValueError``, with the message of the command line. Ctrl-C ends a simulation. Other
    threads of Python run meanwhile.
    """
    _check_frame(frame, "report")
    block, format, columns, skip_bad = _options_of(source, block, format, columns, skip_bad)
    tables = _tables_of(source)
    arrays = [] if tables else _arrays_of(source)
    if tables or arrays:
        sources = []
    else:
        sources = list(source) if isinstance(source, (list, tuple)) else [source]
    settings = {
        "link": link,
        "write_mode": write_mode,
        "guests": guests,
        "seed": seed,
        "warmup": _text(warmup),
        "requests": requests,
        "windows": _text(windows),
        "bounds": bounds,
        "order": order,
        "latency": latency,
        "clients": clients,
        "think": _text(think),
        "threads": threads,
        "objects": objects,
        "ttl": ttl,
        "admit_size_max": _text(admit_size_max),
    }
    _check_settings(settings, wholes=("guests", "seed", "requests", "clients", "threads"),
                    flags=("bounds", "objects"), most={"guests": 2**32 - 1, "clients": 2**32 - 1})
    with _Named() as named, _shown(progress, "simulating") as tell:
        unit = "" if objects else "blocks"
        hierarchies = _hierarchies(_by_name(levels, named), sizes, _by_name(policies, named), unit)
        text, doubts = _native.simulate(
            [_path_of(one) for one in sources],
            hierarchies,
            settings,
            _reading(block, format, columns, skip_bad, view),
            tell,
            {"arrays": arrays, "tables": tables, "classes": named.classes},
        )
    _warn(doubts)
    report = _json.loads(text)
    if frame == "report":
        return report
    return _frame_of(_rows_of(report), frame)


def policy(name, *inner, **parameters):
    """A policy with other policies inside it, or with parameters, for the levels and policies of :func:`simulate`.

    ``futae.policy("exclusive", MyPolicy)`` is an exclusive cache that a class orders; ``futae.policy("2q", k_in=0.3)`` is the same as
    the text ``"2q(k_in=0.3)"``.

    name, inner: each a name, a class, or another result of this function.
    parameters: as :func:`policies` lists them.
    """
    return Composed(name, inner, parameters)


def policies(frame=None):
    """The policies, a row each: name, summary, source, cost, deviations and parameters.

    ``frame`` as in :func:`simulate`.
    """
    _check_frame(frame)
    return _frame_of(_json.loads(_native.policies()), frame)


def mrc(
    source,
    policy="lru",
    *,
    sizes=None,
    points=40,
    exact=False,
    shards=None,
    shards_blocks=None,
    aet=None,
    kosmo=None,
    kosmo_blocks=None,
    mini=None,
    repeats=1,
    requests=None,
    seed=1,
    block=None,
    format=None,
    columns=None,
    skip_bad=False,
    view=None,
    progress=None,
    frame=None,
):
    """Computes a miss-ratio curve, and returns a frame with a row for each point: those of ``futae mrc --csv``.

    Columns: ``method``, ``cache_blocks``, ``cache_bytes``, ``miss_ratio`` and ``half_width``. The arguments are the options of
    ``futae mrc``. Without a method the curve is exact.

    source: the path of a trace, a :class:`Trace`, a workload, or one array or table as :func:`simulate` takes it.
    policy: the policy, such as ``"lru"`` or ``"2q(k_in=0.3)"``.
    sizes: of the caches; if not given, ``points`` sizes evenly spaced up to all blocks.
    exact: also compute the exact curve.
    shards: sample this share of the blocks (SHARDS, fixed rate; lru only).
    shards_blocks: sample this many blocks (SHARDS, fixed size; lru only).
    aet: estimate from the reuse times of this share of the blocks (AET; lru only).
    kosmo: find the sizes that hit the requests for this share of the blocks (Kosmo; fifo, lru, lfu, lfu-in-cache and lrfu).
    kosmo_blocks: the same for this many blocks.
    mini: simulate small caches under the requests for this share of the blocks (any policy without readahead).
    repeats: the number of samples of a sampled curve; it is their mean, and ``half_width`` is half of its 95 % interval.
    requests: the number of requests that are used.
    The others, ``frame`` among them, are as in :func:`simulate`; ``"report"`` is what ``futae mrc --json`` prints.
    """
    _check_frame(frame, "report")
    if not isinstance(policy, str):
        raise Error(f"policy={policy!r} is no text: a curve is of a policy such as 'lru' or '2q(k_in=0.3)'; classes are for simulate()")
    block, format, columns, skip_bad = _options_of(source, block, format, columns, skip_bad)
    wanted = {
        "policy": policy,
        "exact": exact,
        "shards": shards,
        "shards_blocks": shards_blocks,
        "aet": aet,
        "kosmo": kosmo,
        "kosmo_blocks": kosmo_blocks,
        "mini": mini,
        "repeats": repeats,
        "sizes": None if sizes is None else [_size(size) for size in _listed(sizes, "sizes")],
        "points": points,
        "requests": requests,
        "seed": seed,
    }
    _check_settings(wanted, wholes=("shards_blocks", "kosmo_blocks", "repeats", "points", "requests", "seed"), flags=("exact",))
    reading = _reading(block, format, columns, skip_bad, view)
    with _shown(progress, "reading and simulating") as tell:
        text, doubts = _native.mrc(_one_of(source), wanted, reading, tell)
    _warn(doubts)
    report = _json.loads(text)
    if frame == "report":
        return report
    rows = [
        {
            "method": curve["method"],
            "cache_blocks": point["blocks"],
            "cache_bytes": point["blocks"] * report["block_bytes"],
            "miss_ratio": point["miss_ratio"],
            "half_width": (curve["half_widths"] or [None] * (at + 1))[at],
        }
        for curve in report["curves"]
        for at, point in enumerate(curve["points"])
    ]
    return _frame_of(rows, frame, ["method", "cache_blocks", "cache_bytes", "miss_ratio", "half_width"])


def locality(
    source,
    levels=(),
    *,
    link=None,
    warmup=None,
    requests=None,
    bins=60,
    log=False,
    seed=1,
    block=None,
    format=None,
    columns=None,
    skip_bad=False,
    view=None,
    progress=None,
    frame=None,
):
    """Computes re-access intervals, how soon blocks are requested again, at the application and below each level, like ``futae locality``.

    An interval is the amount of data of other requests, at that place, between two requests for the same block. Returns a frame with a row for
    each bin of each place: ``place``, ``low_bytes``, ``high_bytes``, ``share`` (of the place's re-accesses) and ``density_per_gb``;
    and the place's ``reaccesses``, ``median_bytes``, ``gap_bytes`` and ``theory_gap_bytes``, the same in each of its rows.

    source: the path of a trace, a :class:`Trace`, a workload, or one array or table as :func:`simulate` takes it.
    levels: top down, each ``"POLICY:SIZE"`` or ``("POLICY", SIZE)``.
    warmup: the number of requests before counting begins; the default is a fifth of all.
    bins: the number of bins.
    log: use bins of growing width.
    The others are as in :func:`simulate`; ``"report"`` is what ``futae locality --json`` prints.
    """
    _check_frame(frame, "report")
    block, format, columns, skip_bad = _options_of(source, block, format, columns, skip_bad)
    counted = {"link": link, "warmup": warmup, "requests": requests, "bins": bins, "log": log, "seed": seed}
    _check_settings(counted, wholes=("warmup", "requests", "bins", "seed"), flags=("log",))
    asked = [_level(level, None) for level in _listed(levels, "levels")]
    reading = _reading(block, format, columns, skip_bad, view)
    with _shown(progress, "reading and simulating") as tell:
        text, doubts = _native.locality(_one_of(source), asked, counted, reading, tell)
    _warn(doubts)
    report = _json.loads(text)
    if frame == "report":
        return report
    of_bin = ("low_bytes", "high_bytes", "share", "density_per_gb")
    of_place = ("reaccesses", "median_bytes", "gap_bytes", "theory_gap_bytes")
    rows = [
        {"place": tap["place"], **one, **{key: tap[key] for key in of_place}} for tap in report["taps"] for one in tap["bins"]
    ]
    return _frame_of(rows, frame, ["place", *of_bin, *of_place])


def _one_of(source):
    """The source of what has no guests: a name, a table or an array."""
    given = _tables_of(source) or _arrays_of(source)
    given_in_memory = bool(given)
    if not given:
        given = list(source) if isinstance(source, (list, tuple)) else [source]
    if len(given) > 1:
        raise Error(f"here are {len(given)} traces, and this takes one: call it for each, or give them to simulate() as guests of one cache")
    if not given:
        raise Error("the list of sources is empty: give one")
    (one,) = given
    return one if given_in_memory else _path_of(one)


def _text(value):
    """A number or a text as a text, and None as it is."""
    return None if value is None else str(value)


def _size(size, unit="blocks"):
    """A size as the command line has it; a number is one of this unit."""
    if isinstance(size, bool) or not (isinstance(size, str) or hasattr(size, "__index__")):
        raise Error(f"{size!r} is no size: give a text such as '1GiB' or '1%', or a number of blocks")
    return size if isinstance(size, str) else f"{size.__index__()}{unit}"


def _by_name(policies, named):
    """Levels or policies, with names in place of classes, also in lists and pairs."""
    if isinstance(policies, (list, tuple)):
        return type(policies)(_by_name(one, named) for one in policies)
    return named.name(policies)


def _listed(value, what):
    """The items of a list; a lone text is one item, not its letters."""
    if isinstance(value, str):
        return [value]
    try:
        return list(value)
    except TypeError:
        raise Error(f"{what}={value!r} is no list") from None


def _level(level, size, unit="blocks"):
    """A level as POLICY:SIZE; of one without a size it is `size`, if that is given."""
    if isinstance(level, tuple) and len(level) == 2 and isinstance(level[0], str):
        return f"{level[0]}:{_size(level[1], unit)}"
    if not isinstance(level, str):
        raise Error(f"level {level!r} is neither 'POLICY:SIZE' nor ('POLICY', SIZE)")
    if size is None or _has_size(level):
        return level
    return f"{level}:{_size(size, unit)}"


def _has_size(level):
    """Whether a colon follows the policy, parentheses left out."""
    return ":" in level[level.rfind(")") + 1 :]


def _hierarchies(levels, sizes, policies, unit):
    """The levels of each run, as texts."""
    if (levels is None) == (policies is None):
        raise Error(
            "say what to simulate: either levels, such as levels=['lru:3GiB', 'exclusive:4GiB'], "
            "or policies and sizes, such as policies=['lru', 'arc'], sizes=['1%', '10%']"
        )
    if policies is not None:
        if sizes is None:
            raise Error("policies need sizes, such as sizes=['1%', '10%']")
        hierarchies = [[policy] for policy in _listed(policies, "policies")]
    else:
        levels = _listed(levels, "levels")
        if not levels:
            raise Error("levels has no level: give one at least, such as levels=['lru:3GiB']")
        several = isinstance(levels[0], list)
        if any(isinstance(level, list) != several for level in levels):
            raise Error("levels has levels beside lists of levels: give a list for each run, or one list of levels")
        hierarchies = levels if several else [levels]
    if sizes is None:
        return [[_level(level, None, unit) for level in hierarchy] for hierarchy in hierarchies]
    for hierarchy in hierarchies:
        if all(not isinstance(level, str) or _has_size(level) for level in hierarchy):
            raise Error(f"sizes has nothing to say: every level of {hierarchy!r} has a size of its own")
    sizes = _listed(sizes, "sizes")
    if not sizes:
        raise Error("sizes has no size: give one at least, such as sizes=['1%']")
    return [[_level(level, size, unit) for level in hierarchy] for hierarchy in hierarchies for size in sizes]
