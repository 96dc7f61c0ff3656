"""Adds a task, once, whatever happens on the way: python3 producer.py ORDER   (Python 3.9 or later)

DELAYD_SERVER is the address of delayd (http://127.0.0.1:7799 by default). DELAYD_TOKEN is an access
token with the scope "produce", where delayd has tokens.
"""
import http.client, json, os, random, sys, time, urllib.error, urllib.request

URL = os.environ.get("DELAYD_SERVER", "http://127.0.0.1:7799")
TOKEN = os.environ.get("DELAYD_TOKEN")
ATTEMPT_TIMEOUT = 5  # seconds for one request
TOTAL_TIMEOUT = 60  # seconds for all attempts together


class Refused(Exception):
    """delayd refuses the task. Sending it again does not help."""


class Unconfirmed(Exception):
    """No attempt was confirmed. The task may be stored or not."""


def post(path, body):
    """Sends one request. Returns status, headers and answer."""
    headers = {"content-type": "application/json"}
    if TOKEN:
        headers["authorization"] = f"Bearer {TOKEN}"
    request = urllib.request.Request(URL + path, body, headers)
    try:
        response = urllib.request.urlopen(request, timeout=ATTEMPT_TIMEOUT)
    except urllib.error.HTTPError as error:  # a status other than 2xx
        response = error
    with response:
        return response.status, response.headers, json.load(response)


def add(task):
    """Adds the task. Repeats the request until it is confirmed, and returns the answer."""
    # Without a key, a repeated add may store the task twice.
    assert task["idempotency_key"]
    # The body is built once: a repeated add must ask for exactly the same.
    body = json.dumps(task).encode()
    deadline = time.monotonic() + TOTAL_TIMEOUT
    backoff = 0.1
    while True:
        retry_after = 0
        try:
            status, headers, answer = post("/delay/task/add", body)
            if status == 200:
                return answer
            if status < 500 and status != 429:  # 400: a wrong field; 401, 403: the token; ...
                raise Refused(answer["error_msg"])
            retry_after = int(headers.get("retry-after", 0))
            why = answer["error_msg"]
        except (OSError, http.client.HTTPException, ValueError) as error:  # no answer
            why = repr(error)
        # The jitter keeps clients that failed together from coming back together.
        wait = max(retry_after, backoff * random.uniform(0.5, 1))
        if time.monotonic() + wait > deadline:
            raise Unconfirmed(why)
        print("trying again:", why, file=sys.stderr)
        time.sleep(wait)
        backoff = min(2 * backoff, 5)


order = int(sys.argv[1])
answer = add({
    "topic": "order.cancel",
    "idempotency_key": f"order-{order}",  # from your data, so that a restarted producer repeats it
    "delay": "30m",
    "mode": "pull",
    "content": {"order": order},
})
print("task", answer["task_id"], "was known" if answer.get("duplicate") else "is new")
