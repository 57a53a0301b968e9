"""Progress that is shown: ``progress=True``."""

import contextlib
import sys


@contextlib.contextmanager
def shown(progress, what):
    """What is called with the fraction done: `progress` itself, a bar for True, or None."""
    if progress is not True:
        yield progress or None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield _text(what)
        print(file=sys.stderr)
        return
    with tqdm(total=100, desc=what, unit="%", bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}") as bar:
        yield lambda part: bar.update(100 * part - bar.n)


def _text(what):
    """A line that is written again when it changes."""
    last = None

    def tell(part):
        nonlocal last
        line = f"\r{what}: {part:4.0%}"
        if line != last:
            print(line, end="", file=sys.stderr, flush=True)
            last = line

    return tell
