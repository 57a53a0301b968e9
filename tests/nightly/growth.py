"""What processes have over time: resident memory, descriptors and threads."""

import os

# What may come to a tenth: memory in KiB.
SLACK = {"memory_kib": 8 << 10, "descriptors": 16, "threads": 8}

# Shorter runs say nothing of growth. A tree keeps a descriptor for each file that the kernel knows, and their number settles late: once it
# came to 699 in the second quarter of 20 s and to 841 in the last.
SECONDS_MIN = 100


def look_at(process):
    """What a process has now; nothing if it has ended."""
    try:
        with open(f"/proc/{process}/status", encoding="utf-8") as file:
            status = dict(line.split(":", 1) for line in file)
        descriptors = len(os.listdir(f"/proc/{process}/fd"))
    except (OSError, ValueError):
        return None
    if "VmRSS" not in status:
        return None
    return {"memory_kib": int(status["VmRSS"].split()[0]), "descriptors": descriptors, "threads": int(status["Threads"])}


class Growth:
    """The most that each process had in the second quarter of the time, and in the last."""

    def __init__(self, seconds):
        self.seconds, self.early, self.late = seconds, {}, {}

    def look(self, at, processes):
        """Notes what `processes`, by name, have at this second."""
        quarter = int(4 * at / self.seconds)
        most = {1: self.early, 3: self.late}.get(quarter)
        for name, process in processes.items():
            for what, count in ((most is not None and look_at(process)) or {}).items():
                most[name, what] = max(most.get((name, what), 0), count)

    def judged(self):
        """How many counts can be compared."""
        return 0 if self.seconds < SECONDS_MIN else len(self.early.keys() & self.late.keys())

    def grown(self):
        """What grew, a line each."""
        if self.seconds < SECONDS_MIN:
            return []
        if not self.judged():
            return ["nothing was seen in the second and the last quarter; take more --seconds"]
        both = sorted(self.early.keys() & self.late.keys())
        more = [key for key in both if self.late[key] > self.early[key] * 1.1 + SLACK[key[1]]]
        return [f"{name}: {what} grew from {self.early[name, what]} to {self.late[name, what]}" for name, what in more]

    def table(self):
        """All of it, a line each."""
        return [f"{name}: {what} {self.early[name, what]}, then {self.late[name, what]}" for name, what in sorted(self.early.keys() & self.late.keys())]
