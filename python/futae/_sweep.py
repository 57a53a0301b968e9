"""Sweeps: on this machine, or on the workers of a Dask cluster."""

import functools
import json
import os
import warnings

from . import _native
from ._checks import check
from ._frames import check_frame, frame_of
from ._native import Error
from ._progress import shown
from ._traces import FutaeWarning

# Pieces of work for each thread of a cluster, so that none waits long for the last.
_PIECES = 4


def sweep(plan, *, out=None, client=None, threads=None, summary=False, progress=None, frame=None):
    """Simulates policies × sizes × traces × seeds, and returns a frame with a row for each level of each cell.

    The plan, the columns and the folder are those of ``futae sweep``, which can continue a sweep that was begun
    here, and the other way round.

    plan: the path of a plan in TOML, or a dict of its keys. Names of traces in a dict are relative to the working directory.
    out: a folder that keeps each completed cell, so that the same call continues after an interruption, and that gets
        ``results.csv`` and ``summary.csv``. Without it, results are in memory only.
    client: a ``dask.distributed.Client``. Its workers simulate the cells. They need futae, and the traces at the same paths, but not
        the folder. If a worker is lost, other workers repeat the cells that it was simulating.
    threads: the default is one for each processor; only without a client.
    summary: a row for each level of each hierarchy and source, over all seeds: ``seeds``, and for each figure the mean and half of its
        95 % confidence interval, such as ``hit_ratio_mean`` and ``hit_ratio_half_width``. They are the columns of ``summary.csv``.
    progress: True shows a bar. A function is called with the fraction that is done, from 0 to 1.
    frame: as in :func:`simulate`, without ``"report"``.

    Cells that fail have no rows. Each reason is a :class:`FutaeWarning`; if all cells fail, ``futae.Error`` is raised.
    """
    check_frame(frame)
    check({"threads": threads}, wholes=("threads",))
    text, folder, is_json = _text_of(plan)
    asked = _native.Sweep(text, folder, is_json)
    names = asked.cells()
    todo = list(range(len(names))) if out is None else asked.missing(os.fspath(out))
    with shown(progress, "sweeping") as tell:
        if client is None:
            kept, failed, remarks = asked.work(todo, threads, None if out is None else os.fspath(out), tell)
        else:
            if threads is not None:
                raise Error("threads is not for a cluster, which has the threads of its workers")
            keep = None if out is None else functools.partial(asked.keep, os.fspath(out))
            pieces = _pieces(todo, names, sum(client.nthreads().values()))
            kept, failed, remarks = _on_cluster(client, (text, folder, is_json), pieces, keep, tell)
    for remark in dict.fromkeys([*asked.warnings(), *remarks]):
        warnings.warn(remark, FutaeWarning, stacklevel=2)
    reasons = {}
    for cell, why in failed:
        reasons.setdefault(why, []).append(cell)
    for why, cells in reasons.items():
        more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
        warnings.warn(f"cell {cells[0]}, {names[cells[0]][1]}{more} failed: {why}", FutaeWarning, stacklevel=2)
    if failed and len(failed) == len(names):
        raise Error(f"every cell failed: {failed[0][1]}")
    columns = asked.table(None if out is None else os.fspath(out), kept, summary)
    rows = [dict(zip(columns, values)) for values in zip(*columns.values())]
    return frame_of(rows, frame)


def _text_of(plan):
    """A plan as text, the folder that names of traces are relative to, and whether the text is JSON."""
    if isinstance(plan, dict):
        try:
            return json.dumps(plan), os.getcwd(), True
        except TypeError as error:
            raise Error(f"the plan has a value that JSON does not have: {error}") from None
    path = os.fspath(plan)
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(), os.path.dirname(os.path.abspath(path)), False
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"cannot read the plan {path}: {error}") from None


def _pieces(todo, names, threads):
    """Cells for a worker at a time: of one source, since it is read once for them."""
    sources = {}
    for cell in todo:
        sources.setdefault(names[cell][0], []).append(cell)
    most = max(1, -(-len(todo) // max(1, threads * _PIECES)))
    return [cells[at : at + most] for cells in sources.values() for at in range(0, len(cells), most)]


def _do(plan, cells):
    """What a worker does."""
    return _native.Sweep(*plan).work(cells, 1, None, None)


def _on_cluster(client, plan, pieces, keep, tell):
    """Has the workers do the cells; whatever comes back is kept at once."""
    from distributed import as_completed

    kept, failed, remarks = [], [], []
    futures = {client.submit(_do, plan, cells, pure=False): cells for cells in pieces}
    done, all_cells = 0, sum(map(len, pieces))
    try:
        completed = as_completed(list(futures))
        for future in completed:
            if future.status in ("lost", "pending"):
                # Its result was with a worker that is gone; the scheduler has the work done again elsewhere.
                completed.add(future)
                continue
            cells = futures[future]
            if future.status == "finished":
                found, bad, said = future.result()
                for cell, text in found:
                    if keep is not None:
                        keep(cell, text)
                    else:
                        kept.append((cell, text))
                failed += bad
                remarks += said
            else:
                raised = future.exception() if future.status == "error" else None
                why = f"{type(raised).__name__}: {raised}" if raised else f"the cluster ended it ({future.status})"
                failed += [(cell, why) for cell in cells]
            # Its result need not stay with the worker.
            future.release()
            done += len(cells)
            if tell is not None:
                tell(done / all_cells)
    finally:
        client.cancel([future for future in futures if not future.done()])
    return kept, failed, remarks
