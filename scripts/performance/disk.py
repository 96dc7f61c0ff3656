"""Where a store has its files, and the library that counts its writes and delays its syncs."""

import array
import os
import subprocess
import tempfile
from pathlib import Path

# In the order of disk.c.
KINDS = ["wal", "database", "other"]
NUMBERS = ["calls", "bytes", "syncs"]
# The file systems that keep nothing on a disk.
IN_MEMORY = ["tmpfs", "ramfs"]


class Absent(Exception):
    """This machine lacks something."""


class Place:
    """A folder on a disk or in memory, whose files are watched if a library is given. `environment`
    is that of the programs that have their files there."""

    def __init__(self, folder, library=None, delay_ms=0):
        self.environment = os.environ | {"TMPDIR": str(folder)}
        self.counts = None
        if library:
            self.counts = library.with_suffix(".counts")
            self.environment |= {
                "LD_PRELOAD": str(library), "DISK_COUNTS": str(self.counts),
                "DISK_SYNC_DELAY_MS": str(delay_ms),
            }

    def begin(self):
        """Forgets what was counted."""
        if self.counts:
            self.counts.unlink(missing_ok=True)

    def written(self, tasks):
        """What was written since `begin`: per task, and by kind of file."""
        counts = array.array("Q", self.counts.read_bytes())
        of_kind = [dict(zip(NUMBERS, counts[at:])) for at in range(0, len(counts), len(NUMBERS))]
        figures = {}
        for name in NUMBERS:
            figures[f"written_{name}_per_task"] = sum(one[name] for one in of_kind) / tasks
            for kind, one in zip(KINDS, of_kind):
                if one[name]:
                    figures[f"{kind}_{name}_per_task"] = one[name] / tasks
        return {name: round(value, 3) for name, value in figures.items()}


def file_system(folder):
    """The kind of its file system, such as `tmpfs`; empty if that is unknown."""
    command = ["stat", "--file-system", "--format=%T", folder]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def on_disk():
    """A folder for temporary files that is on a disk."""
    for folder in [tempfile.gettempdir(), "/var/tmp"]:
        if file_system(folder) not in ["", *IN_MEMORY]:
            return folder
    raise Absent("no folder for temporary files is on a disk: name one in TMPDIR")


def in_memory():
    """A folder in memory."""
    if file_system("/dev/shm") != "tmpfs":
        raise Absent("/dev/shm is no file system in memory")
    return "/dev/shm"


def build(folder):
    """Builds the library in a folder, and returns its path."""
    library, source = Path(folder) / "disk.so", Path(__file__).with_name("disk.c")
    command = ["cc", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", library, source, "-ldl"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise Absent("needs a C compiler (cc)") from None
    except subprocess.CalledProcessError as failed:
        raise Absent(f"cc cannot build disk.c: {failed.stderr.strip()}") from None
    return library
