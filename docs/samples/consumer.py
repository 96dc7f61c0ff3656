"""Pulls due tasks under a lease, works and acknowledges: python3 consumer.py TOPIC

Start as many as you like: each task goes to one of them. SIGTERM ends it after the task in work.
DELAYD_SERVER is the address of delayd (http://127.0.0.1:7799 by default). DELAYD_TOKEN is an access
token with the scope "consume", where delayd has tokens. Python 3.9 or later.
"""
import contextlib, http.client, json, os, signal, sys, threading, time
import urllib.error, urllib.request

URL = os.environ.get("DELAYD_SERVER", "http://127.0.0.1:7799")
TOKEN = os.environ.get("DELAYD_TOKEN")
LEASE = int(os.environ.get("LEASE", 30))  # seconds that a task is ours, see extended()
WAIT = 5  # seconds that a pull waits for a task, and at most 30


class Refused(Exception):
    """delayd refuses the call, such as 409: the lease is lost. Repeating it does not help."""


def call(path, request):
    """Makes one call. Returns the answer; raises OSError or the like if there is none."""
    headers = {"content-type": "application/json"}
    if TOKEN:
        headers["authorization"] = f"Bearer {TOKEN}"
    body = json.dumps(request).encode()
    post = urllib.request.Request(URL + path, body, headers)
    try:
        with urllib.request.urlopen(post, timeout=WAIT + 10) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:  # a status other than 2xx
        with error:
            if error.status < 500 and error.status != 429:
                raise Refused(json.load(error)["error_msg"]) from error
        raise


def call_until_answered(path, request):
    """Repeats a call until it is answered. Acks and nacks can be repeated without harm."""
    while True:
        try:
            return call(path, request)
        except (OSError, http.client.HTTPException, ValueError) as error:
            print("trying again:", path, error, file=sys.stderr)
            time.sleep(1)


@contextlib.contextmanager
def extended(lease):
    """Extends the lease in the background, three times as often as needed."""
    done = threading.Event()

    def extend():
        while not done.wait(LEASE / 3):
            try:
                call("/delay/task/extend", {**lease, "lease": LEASE})
            except Refused as error:  # another consumer has the task by now
                return print("lease lost:", error, file=sys.stderr)
            except (OSError, http.client.HTTPException, ValueError) as error:
                print("not extended:", error, file=sys.stderr)

    thread = threading.Thread(target=extend)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def work(content):
    """Your work. It may be done twice: after a crash, or when the lease was lost."""
    order = json.loads(content)["order"]
    time.sleep(float(os.environ.get("WORK", 0)))
    print("did", order, flush=True)


topic = sys.argv[1]
stopping = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopping.set())
while not stopping.is_set():
    pull = {"topic": topic, "lease": LEASE, "wait": WAIT}
    task = call_until_answered("/delay/task/pull", pull)
    if task["task_id"] is None:  # nothing was due
        continue
    lease = {"topic": topic, "task_id": task["task_id"], "receipt": task["receipt"]}
    try:
        with extended(lease):
            work(task["content"])
        settle = "ack"
    except Exception as error:  # the task comes again after its backoff
        print("failed:", task["task_id"], repr(error), file=sys.stderr)
        settle = "nack"
    try:
        call_until_answered(f"/delay/task/{settle}", lease)
    except Refused as error:
        print(f"{settle} refused:", task["task_id"], error, file=sys.stderr)
