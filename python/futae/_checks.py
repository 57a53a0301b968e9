"""Settings, checked before the work begins."""

from ._native import Error


def check(settings, wholes=(), flags=(), most=None):
    """An error that names a setting which is of no use as a whole number, or as True or False; `most` are the largest of the former."""
    for name in wholes:
        value = settings[name]
        if value is None:
            continue
        if isinstance(value, bool) or not hasattr(value, "__index__") or not 0 <= value.__index__() < 2**64:
            raise Error(f"{name}={value!r} is no whole number of 0 or more")
        if value.__index__() > (most or {}).get(name, 2**64):
            raise Error(f"{name}={value!r} is more than {most[name]}")
    for name in flags:
        if settings[name] not in (True, False):
            raise Error(f"{name}={settings[name]!r} is neither True nor False")
        # One of NumPy is as good.
        settings[name] = bool(settings[name])
