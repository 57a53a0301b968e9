"""Policies that are written in Python."""

import threading

_lock = threading.Lock()
_in_use: set[str] = set()


class Named:
    """Names for classes while a simulation goes on: ``python/MyPolicy``. No two simulations share one."""

    def __init__(self):
        self.classes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with _lock:
            _in_use.difference_update(name for name, _ in self.classes)

    def name(self, policy):
        """A policy as a text: of a class, or whatever makes a policy, its name."""
        if not callable(policy):
            return policy
        for name, known in self.classes:
            if known is policy:
                return name
        plain = getattr(policy, "__name__", type(policy).__name__)
        plain = "python/" + "".join(c for c in plain if c.isalnum() or c == "_")
        with _lock:
            name, number = plain, 1
            while name in _in_use:
                number += 1
                name = f"{plain}-{number}"
            _in_use.add(name)
        self.classes.append((name, policy))
        return name
