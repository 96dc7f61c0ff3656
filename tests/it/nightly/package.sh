#!/usr/bin/env bash
# Makes the Debian package of built programs, twice, with a higher version the second time.
# Installs, upgrades, removes and purges it in a container whose first process is systemd. Needs the
# Docker engine. Prints "package: ok" if everything is as it should be.
#
#   package.sh FOLDER     FOLDER has delayd and delayd-bench
set -euo pipefail
programs=$(realpath "$1")
cd "$(dirname "$0")/../../.."
. scripts/needs
need_cargo_deb

work=$(mktemp -d)
container=delayd-package-$$
trap 'docker rm -f "$container" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT

# scripts/package takes the programs from its folder dist/package.
export CARGO_TARGET_DIR=$work
for program in delayd delayd-bench; do
    scripts/split-debug "$programs/$program" "$work/dist/package"
done
scripts/package --fast --quiet --deb-version 1.0.0
scripts/package --fast --quiet --deb-version 1.0.1

docker build --quiet --tag delayd-systemd - >&2 <<'END'
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends systemd-sysv dbus curl sudo
# systemd needs control groups of its own, which it may change.
CMD mount -o remount,rw /sys/fs/cgroup && exec /sbin/init
END
# systemd needs these rights to isolate the service as its unit asks.
docker run --detach --name "$container" --cgroupns=private \
    --cap-add SYS_ADMIN --cap-add SYS_PTRACE --security-opt apparmor=unconfined \
    --volume "$work/dist/package:/packages:ro" delayd-systemd >&2

# The commands are printed, so that the output of a failed test ends with the one that failed.
docker exec --interactive --env DEBIAN_FRONTEND=noninteractive "$container" \
    bash -euxo pipefail <<'END'
for _ in {1..60}; do
    state=$(systemctl is-system-running --wait) || true
    [[ $state == running || $state == degraded ]] && break
    sleep 1
done

install_version() { apt-get install -qq --no-install-recommends "/packages/delayd_$1_"*.deb; }
healthy() { curl -fsS http://127.0.0.1:7799/healthz; }
call() {
    curl -fsS "http://127.0.0.1:7799/delay/task/$1" -d "$2" \
        ${token:+-H "Authorization: Bearer $token"}
}
# be_healthy: waits for up to a minute.
be_healthy() {
    for _ in {1..60}; do
        if healthy; then return; fi
        sleep 1
    done
    return 1
}
pid() { systemctl show --property MainPID --value delayd; }
# journal TEXT [MATCH…]: waits until the journal of the service, or of the matches, has the text.
journal() {
    local text=$1
    shift
    for _ in {1..60}; do
        if journalctl --output cat "${@:---unit=delayd}" | grep -F "$text"; then return; fi
        sleep 1
    done
    return 1
}
store=/var/lib/delayd/data/delayd.db
settings=/etc/delayd/delayd.toml
token=""

: 'An installation starts the service, and ends once it listens.'
# The list of packages may be as old as the image.
apt-get update -qq
install_version 1.0.0
healthy
systemctl is-active delayd
systemctl is-enabled delayd
systemctl status --no-pager delayd
systemctl restart delayd
healthy
journal 'listens on http://127.0.0.1:7799'
dpkg -L delayd | grep -x /usr/share/man/man1/delayd-add.1.gz
dpkg -L delayd | grep -x /usr/share/bash-completion/completions/delayd
# The image leaves out the files of /usr/share/doc.
dpkg -L delayd | grep -x /usr/share/doc/delayd/default.toml
delayd --version
delayd-bench --version

: 'Only the service can read its store, and it can do little else.'
test -s $store
test "$(stat --format '%a %U' /var/lib/delayd)" = '700 delayd'
test "$(stat --format %U "/proc/$(pid)")" = delayd
systemd-analyze security --no-pager --threshold=13 delayd | tail -n 1

: 'The configuration is read again.'
delayd token --name me --scope produce,consume,admin --topic '*' >/tmp/token
tail -n +2 /tmp/token >>$settings
printf '[callback.retry.backoff]\nbase = "2s"\n[callback]\nretry_after_max = "16m"\n' >>$settings
systemctl reload delayd
journal 'Received SIGHUP'
journal 'The configuration was read again'
if call add '{"topic":"a","delay":0,"content":{}}'; then exit 1; fi
token=$(head -n 1 /tmp/token | cut -d ' ' -f 3)
export DELAYD_TOKEN=$token

: 'The service reads a secret of its user. A command beside it needs this user, and the variables.'
printf 'secret' >/tmp/shop-key
printf 'SHOP_TENANT=shop\n' >/tmp/environment
install -m 0600 /tmp/environment /etc/delayd/
install -m 0600 /tmp/shop-key /etc/delayd/
cat >>$settings <<'SERVICE'
[services.shop]
endpoints = ["http://127.0.0.1:7900"]
[services.shop.headers]
x-api-key = { file = "/etc/delayd/shop-key" }
x-tenant = { env = "SHOP_TENANT" }
SERVICE
beside() {
    sudo systemd-run --quiet --pipe --wait --collect --uid=delayd \
        --property=EnvironmentFile=/etc/delayd/environment \
        delayd "$@" --config $settings
}
exit_code() { "$@" >/tmp/said 2>&1 && echo 0 || echo $?; }
test "$(exit_code beside check)" = 78
grep -F /etc/delayd/shop-key /tmp/said
install -o delayd -m 0600 /tmp/shop-key /etc/delayd/
beside check
test "$(exit_code sudo -u delayd delayd check --config $settings)" = 78
grep -F SHOP_TENANT /tmp/said
chown delayd $settings
chmod 0600 $settings
systemctl restart delayd
healthy

: 'An upgrade restarts the service, and keeps its tasks and its settings.'
call add '{"topic":"a","delay":0,"content":{"number":1}}'
call add '{"topic":"b","delay":"1h","key":"later","content":{"number":2}}'
before=$(pid)
install_version 1.0.1
healthy
test "$(pid)" != "$before"
journal 'Drained' _PID="$before"
call pull '{"topic":"a"}' | grep -F '{\"number\":1}'
grep -Fx 'retry_after_max = "16m"' $settings

: 'A copy, made beside the service, can be restored.'
install -d -o delayd -m 0700 /var/backups/delayd
test "$(exit_code sudo -u nobody delayd backup /tmp/b.db --set store.embedded.path=$store)" = 78
grep -F 'run this as the user that runs delayd' /tmp/said
sed -i '/^x-tenant/d' $settings
sudo -u delayd delayd backup /var/backups/delayd/delayd.db --config $settings
call add '{"topic":"b","delay":"1h","key":"too late","content":{}}'
systemctl stop delayd
mv /var/lib/delayd/data /var/lib/delayd/old
install -d -o delayd -g delayd -m 0700 /var/lib/delayd/data
install -o delayd -g delayd -m 0600 /var/backups/delayd/delayd.db /var/lib/delayd/data/
systemctl start delayd
delayd get b --key later
if delayd get b --key 'too late'; then exit 1; fi
sudo -u delayd delayd check --config $settings
sudo -u delayd delayd fsck --config $settings

: 'systemd restarts a service that hangs.'
mkdir /etc/systemd/system/delayd.service.d
printf '[Service]\nWatchdogSec=2\n' >/etc/systemd/system/delayd.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart delayd
before=$(pid)
kill -STOP "$before"
journal 'Watchdog timeout'
be_healthy
test "$(pid)" != "$before"
rm /etc/systemd/system/delayd.service.d/watchdog.conf
systemctl daemon-reload

: 'systemd restarts a service that fails at once, more often than its default limit of five.'
systemctl stop delayd
timeout 15 delayd receive --bind 127.0.0.1:7799 &
sleep 1
systemctl start delayd || true
wait $! || true
be_healthy
test "$(systemctl show --property NRestarts --value delayd)" -gt 5

: 'A removal leaves the settings and the store.'
apt-get remove -qq delayd
test ! -e /usr/bin/delayd
if systemctl is-active delayd || healthy; then exit 1; fi
test -s $settings
test -s $store
test "$(stat --format '%a %U' $store $settings /etc/delayd/shop-key | uniq)" = '600 delayd'
install_version 1.0.1
healthy
grep -Fx 'retry_after_max = "16m"' $settings
delayd get b --key later

: 'A purge leaves the store only, and says so.'
apt-get purge -qq delayd | tee /tmp/purged
grep -F 'rm -r /var/lib/delayd && userdel delayd' /tmp/purged
test ! -e $settings
test "$(stat --format %U $store)" = delayd
install_version 1.0.1
healthy
unset DELAYD_TOKEN
delayd get b --key later
END
echo "package: ok"
