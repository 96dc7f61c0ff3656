"""Receives callbacks (Python 3.9 or later):

DELAYD_SECRETS=whsec_… PORT=9000 DATABASE=receiver.db python3 receiver.py
"""
import base64, contextlib, hashlib, hmac, os, sqlite3, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# One secret; several, separated by spaces, while a secret is rotated.
SECRETS = os.environ["DELAYD_SECRETS"].split()
KEYS = [base64.b64decode(secret.removeprefix("whsec_")) for secret in SECRETS]
assert KEYS and all(KEYS), "DELAYD_SECRETS: expected secrets; anybody could sign with an empty key"
DATABASE = os.environ.get("DATABASE", "receiver.db")
TOLERANCE = 300  # seconds
MAX_BODY = 1 << 20


def is_signed(headers, body):
    moment = headers.get("webhook-timestamp", "")
    if not moment.isdecimal() or len(moment) > 12 or abs(time.time() - int(moment)) > TOLERANCE:
        return False
    signed = f'{headers.get("webhook-id")}.{moment}.'.encode() + body  # the received bytes
    digests = [hmac.new(key, signed, hashlib.sha256).digest() for key in KEYS]
    right = [b"v1," + base64.b64encode(digest) for digest in digests]
    given = [word.encode() for word in headers.get("webhook-signature", "").split()]
    return any(hmac.compare_digest(one, other) for one in given for other in right)


def take(webhook_id, body):
    """Does the work and commits its effect together with the id. Returns False if done before."""
    with contextlib.closing(sqlite3.connect(DATABASE)) as database, database:
        insert = "INSERT INTO done (webhook_id) VALUES (?) ON CONFLICT DO NOTHING"
        if database.execute(insert, [webhook_id]).rowcount == 0:
            return False
        # Your work, in the same transaction.
        database.execute("INSERT INTO effects (body) VALUES (?)", [body])
    print("did", webhook_id, flush=True)
    return True


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open for further calls

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        if length > MAX_BODY:
            self.close_connection = True
            return self.answer(413, b'{"dm_error":413}')
        body = self.rfile.read(length)
        if not is_signed(self.headers, body):
            return self.answer(401, b'{"dm_error":401}')
        try:
            done = take(self.headers["webhook-id"], body)
        except Exception as error:  # not done: delayd calls again
            self.log_error("failed: %r", error)
            return self.answer(500, b'{"dm_error":500}')
        self.answer(200, b'{"dm_error":0}' if done else b'{"dm_error":0,"duplicate":true}')

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


with contextlib.closing(sqlite3.connect(DATABASE)) as database, database:
    columns = "webhook_id TEXT PRIMARY KEY, at DEFAULT CURRENT_TIMESTAMP"
    database.execute(f"CREATE TABLE IF NOT EXISTS done ({columns})")
    database.execute("CREATE TABLE IF NOT EXISTS effects (body)")
server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", 9000))), Receiver)
print("listens on port", server.server_port, flush=True)
server.serve_forever()
