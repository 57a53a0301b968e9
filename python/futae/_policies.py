"""Policies that are written in Python, and policies of several parts."""

import threading

from ._native import Error

_lock = threading.Lock()
_in_use: set[str] = set()


class Composed:
    """What :func:`futae.policy` returns: a policy with others inside it, and parameters."""

    def __init__(self, name, inner, parameters):
        for one in (name, *inner):
            if not (isinstance(one, (str, Composed)) or callable(one)):
                raise Error(f"{one!r} is no policy: give a name, a class, or what futae.policy() returns")
        self._name, self._inner, self._parameters = name, inner, parameters

    def _text(self, name_of):
        """As the command line has it; ``name_of`` is given each policy."""
        parameters = (f"{key}={_value(value)}" for key, value in self._parameters.items())
        arguments = ",".join([*map(name_of, self._inner), *parameters])
        return name_of(self._name) + (f"({arguments})" if arguments else "")

    def __repr__(self):
        given = [repr(self._name), *map(repr, self._inner), *(f"{key}={value!r}" for key, value in self._parameters.items())]
        return f"futae.policy({', '.join(given)})"


def _value(value):
    return str(value).lower() if isinstance(value, bool) else value


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
        if isinstance(policy, Composed):
            return policy._text(self.name)
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
