"""A guest with a kernel of its own, whose disk is an export by vhost-user: what it wrote in one boot, it finds in the next one."""

import os
import shutil
import sys

from world import MIB, Failed

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "suites"))

from guest import boot, disk_of_suite, image, vhost_disk
from places import Missing

# For a boot and what is done in it, beside all the others.
LIMIT_SECONDS = 900
WRITTEN = 24 * MIB
SCRIPT = """check() {{
    fio --name=disk --filename=/dev/disk/by-id/virtio-guest --direct=1 --ioengine=libaio --iodepth=8 --rw=randwrite --bs=4k-64k --size={size} --verify=crc32c --verify_fatal=1 "$@"
}}
test {before} = 0 || check --randseed={before} --verify_only=1 || exit 1
check --randseed={now} --end_fsync=1 && echo "disk: as written"
"""


def prepare(work):
    """Makes the guest's image, if it is not there."""
    try:
        image(work)
    except Missing as missing:
        sys.exit(f"nightly: no guest: {missing}")


def guest(world, dice):
    """A guest boots, reads what the one before wrote, writes the disk anew, reads that, and ends."""
    work = world.path("scratch/guest")
    os.mkdir(work)
    now = dice.randrange(1, 1 << 30)
    try:
        disks = disk_of_suite(SCRIPT.format(before=world.written_in_guest, now=now, size=WRITTEN), f"{work}/suite.img", "8M")
        text = boot(image(work), disks + vhost_disk("guest", world.path("guest.sock")), LIMIT_SECONDS)
    except (Missing, SystemExit) as trouble:
        raise Failed(str(trouble)) from trouble
    finally:
        shutil.rmtree(work)
    if "disk: as written" not in text:
        raise Failed(f"the guest found other data than were written: {text.strip()[-2000:]}")
    world.written_in_guest = now
