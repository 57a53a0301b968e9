#!/bin/busybox sh
# The first program of a guest: it loads modules, then runs what the channel tells it.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do
    insmod "/modules/$module.ko" || echo "init: module $module cannot be loaded"
done </modules/order
rm -r /modules

port=
for attempt in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    for candidate in /sys/class/virtio-ports/*; do
        [ "$(cat "$candidate/name" 2>/dev/null)" = futae.orders ] && port=/dev/${candidate##*/}
    done
    [ -n "$port" ] && [ -e "$port" ] && break
    sleep 0.1
done
# The port can be opened once only.
exec 3<>"$port"
echo "ready $(uname -r)" >&3
while read -r order <&3; do
    echo "$order" | xxd -r -p >/tmp/order
    echo "init: $(head -c 200 /tmp/order)"
    sh /tmp/order >/tmp/out 2>/tmp/err </dev/null 3<&-
    status=$?
    cp /tmp/out /tmp/out.done
    cp /tmp/err /tmp/err.done
    echo "done $status $(wc -c </tmp/out.done) $(wc -c </tmp/err.done)" >&3
    cat /tmp/out.done /tmp/err.done >&3
done
# Nobody is there any more.
poweroff -f
