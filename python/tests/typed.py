"""What a type checker has to accept and to refuse. `test_simulate.py` gives it to mypy; nobody runs it."""

from pathlib import Path
from typing import Any, assert_type

import futae
import numpy
import pandas

assert_type(futae.simulate("loop:4MiB", levels=["lru:10%"]), pandas.DataFrame)
assert_type(futae.simulate("loop:4MiB", levels=["lru:10%"], frame="dict"), list[dict[str, Any]])
assert_type(futae.simulate("loop:4MiB", levels=["lru:10%"], frame="report"), dict[str, Any])
futae.simulate(Path("a.csv"), policies=["lru", "arc"], sizes=["1%", 1000], warmup="10%", windows=24, bounds=True)
futae.simulate([Path("a.csv"), "b.csv"], levels=["lru:1%"], order="turns", windows="1h", warmup="1h")
futae.simulate("a.csv", levels=["lru:1%"], latency="store=exp(1ms)*4", clients=8)
futae.simulate("a.csv", levels=["lru:1%"], latency="store=1ms", think="recorded")
futae.simulate("a.csv", policies=["lru"], sizes=[10_000], objects=True, ttl="1h", admit_size_max=4096)
futae.simulate(numpy.arange(9), ["lru:1%"])
futae.mrc("a.csv", "lru", shards=0.1)
futae.locality("a.csv", ["lru:1%"])
futae.sweep({"traces": ["a.csv"]}, frame="dict")
assert_type(futae.policy("exclusive", "lru", keep_served=True), futae.Composed)
futae.simulate("a.csv", [(futae.policy("2q", k_in=0.3), 1000)])

futae.simulate("a.csv", levels=["lru:1%"], order="sorted")  # type: ignore[call-overload]
futae.simulate("a.csv", levels=["lru:1%"], warmup=0.5)  # type: ignore[call-overload]
futae.simulate("a.csv", levels=["lru:1%"], objects="yes")  # type: ignore[call-overload]
futae.simulate("a.csv", levels=[3])  # type: ignore[arg-type]
