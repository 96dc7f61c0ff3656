"""A transactional outbox over SQLite (Python 3.9 or later):

    python3 outbox.py shop.db order 42      places an order and asks for its timer
    python3 outbox.py shop.db pay 42        pays the order and asks for the end of the timer
    python3 outbox.py shop.db relay         sends what was asked for, until nothing is left

DELAYD_SERVER is the address of delayd (http://127.0.0.1:7799 by default). DELAYD_TOKEN is an access
token with the scope "produce", where delayd has tokens.
"""
import http.client, json, os, random, sqlite3, sys, time, urllib.error, urllib.request

URL = os.environ.get("DELAYD_SERVER", "http://127.0.0.1:7799")
TOKEN = os.environ.get("DELAYD_TOKEN")
TIMEOUT = 15  # seconds for one request

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
  id BIGINT PRIMARY KEY,
  state VARCHAR(16) NOT NULL
);
CREATE TABLE IF NOT EXISTS delay_outbox (
  id INTEGER PRIMARY KEY,
  path VARCHAR(64) NOT NULL,
  request TEXT NOT NULL,
  sent_at TIMESTAMP,
  refused TEXT
);
"""
ASK = "INSERT INTO delay_outbox (path, request) VALUES (?, ?)"
NEXT = "SELECT id, path, request FROM delay_outbox WHERE sent_at IS NULL ORDER BY id LIMIT 100"
MARK = "UPDATE delay_outbox SET sent_at = CURRENT_TIMESTAMP, refused = ? WHERE id = ?"


def place(db, order):
    """The order and the request for its timer are stored together, or not at all."""
    request = {
        "topic": "order.close",
        "idempotency_key": f"order-{order}",
        "timing_moment": int(time.time()) + 1800,  # not "delay": the relay may be late
        "mode": "pull",
        "content": {"order": order},
    }
    with db:  # one transaction
        db.execute("INSERT INTO orders (id, state) VALUES (?, 'unpaid')", (order,))
        db.execute(ASK, ("/delay/task/add", json.dumps(request)))


def pay(db, order):
    request = {"topic": "order.close", "idempotency_key": f"order-{order}"}
    with db:
        db.execute("UPDATE orders SET state = 'paid' WHERE id = ?", (order,))
        db.execute(ASK, ("/delay/task/cancel", json.dumps(request)))


def post(path, request):
    """Returns the status and the answer; raises an error if there is none."""
    headers = {"content-type": "application/json"}
    if TOKEN:
        headers["authorization"] = f"Bearer {TOKEN}"
    call = urllib.request.Request(URL + path, request.encode(), headers)
    try:
        response = urllib.request.urlopen(call, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:  # a status other than 2xx
        response = error
    with response:
        return response.status, int(response.headers.get("retry-after", 0)), json.load(response)


def relay(db):
    """Sends the requests in order. A request is marked when it was answered, so it may be sent
    twice: the idempotency key makes that safe."""
    backoff = 0.1
    while rows := db.execute(NEXT).fetchall():
        for row, path, request in rows:
            wait, refused = 0, None
            try:
                status, wait, answer = post(path, request)
                if status in (401, 403):  # the token, which the operator corrects
                    raise SystemExit(answer["error_msg"])
                is_open = status >= 500 or status == 429
                if status >= 400:
                    refused = answer["error_msg"]
            except (OSError, http.client.HTTPException, ValueError) as error:  # no answer
                is_open, refused = True, repr(error)
            if is_open:
                print("trying again:", refused, file=sys.stderr)
                time.sleep(max(wait, backoff * random.uniform(0.5, 1)))
                backoff = min(2 * backoff, 5)
                break  # from the first request on, so that the order is kept
            backoff = 0.1
            with db:
                db.execute(MARK, (refused, row))


db = sqlite3.connect(sys.argv[1])
db.executescript(SCHEMA)
if sys.argv[2] == "relay":
    relay(db)
else:
    {"order": place, "pay": pay}[sys.argv[2]](db, int(sys.argv[3]))
