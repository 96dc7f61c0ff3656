#!/usr/bin/env bash
# Starts docker-compose.yml with an image of built programs, and adds tasks through nginx while an
# instance and Redis are killed, and while the instances are restarted and then recreated. Needs
# the Docker engine and the ports of the file. While it runs, the image "delayd" is another one.
# Prints a table, and "compose: ok" if everything is as it should be.
#
#   compose.sh FOLDER     FOLDER has delayd and delayd-bench
set -euo pipefail
programs=$(realpath "$1")
cd "$(dirname "$0")/../../.."
. scripts/needs
need_compose
need python3 python3 python3 python3 python3

program="docker-compose"
if docker compose version >/dev/null 2>&1; then
    program="docker compose"
fi
for port in 7799 7798 8080; do
    if (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        echo "compose.sh: port $port of docker-compose.yml is in use" >&2
        exit 1
    fi
done
project=delayd-test-$$
work=$(mktemp -d)
image_before=$(docker image inspect --format '{{.Id}}' delayd 2>/dev/null || true)
image=$image_before
compose() { $program --project-name "$project" "$@"; }
# What the test has started ends with it, also after a failure.
ended() {
    local code=$?
    touch "$work/end"
    if [ "$code" -ne 0 ]; then
        compose ps >&2 || true
        compose logs --no-color --tail 30 delayd-1 delayd-2 nginx redis >&2 || true
    fi
    compose down --volumes --timeout 0 >&2 || true
    if [ "$image" != "$image_before" ]; then
        [ -z "$image_before" ] || docker tag "$image_before" delayd || true
        docker image rm "$image" >&2 || true
    fi
    wait
    rm -rf "$work"
}
trap ended EXIT

image=$(scripts/image "$programs" delayd --quiet)

# within SECONDS COMMAND…: repeats the command until it succeeds.
within() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        if [ $SECONDS -ge $until ]; then
            echo "compose.sh: for too long this has failed: $*" >&2
            return 1
        fi
        sleep 1
    done
}
ready() { curl -fs --noproxy "*" --max-time 5 "http://127.0.0.1:$1/readyz" >/dev/null; }
all_ready() { ready 7799 && ready 7798 && ready 8080; }
state() { docker inspect --format "{{$2}}" "$1"; }
healthy() { [ "$(state "$1" .State.Health.Status)" = healthy ]; }
restarts() { [ "$(state "$1" .RestartCount)" -gt "$2" ]; }
# Docker does not restart a container after `docker kill`. So its process is killed.
crash() {
    local container before process
    container=$(compose ps -q "$1")
    before=$(state "$container" .RestartCount)
    process=$(state "$container" .State.Pid)
    docker run --rm --pid host debian:bookworm-slim bash -c "kill -KILL $process" >&2
    within 30 restarts "$container" "$before"
    within 60 all_ready
}
# The adds of the load are counted under this name from now on.
phase() {
    printf '%s' "$1" >"$work/next"
    mv "$work/next" "$work/phase"
    sleep 2
}

compose up --detach --no-build >&2
within 90 all_ready
for service in redis delayd-1 delayd-2; do
    within 60 healthy "$(compose ps -q $service)"
done

phase start
timeout 250 python3 tests/it/nightly/compose.py add "$work" &
load=$!
sleep 2
phase instance_killed
crash delayd-1
phase redis_killed
crash redis
phase restarts
for service in delayd-1 delayd-2 delayd-1 delayd-2; do
    compose restart "$service" >&2
    within 60 all_ready
    sleep 1
done
phase recreation
for service in delayd-1 delayd-2; do
    before=$(compose ps -q $service)
    compose up --detach --no-build --force-recreate --no-deps $service >&2
    [ "$(compose ps -q $service)" != "$before" ]
    within 60 ready 7799 && within 60 ready 7798
    compose exec -T nginx nginx -s reload >&2
    within 60 all_ready
    sleep 2
done
touch "$work/end"
wait "$load"

delivered() {
    compose logs --no-color receiver >"$work/received"
    python3 tests/it/nightly/compose.py compare "$work" >"$work/compared" 2>&1
}
# Tasks that an instance held when it was killed come back after their lease.
waited=0
within 100 delivered || waited=$?
cat "$work/compared"
[ "$waited" -eq 0 ]
echo "compose: ok"
