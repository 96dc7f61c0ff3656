// Receives callbacks (Node 18 or later): DELAYD_SECRETS=whsec_… PORT=9000 node receiver.mjs
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

// One secret; several, separated by spaces, while a secret is rotated.
const secrets = process.env.DELAYD_SECRETS.split(" ");
const keys = secrets.map((secret) => Buffer.from(secret.replace(/^whsec_/, ""), "base64"));
if (!keys.every((key) => key.length)) {
  throw new Error("DELAYD_SECRETS: expected secrets; anybody could sign with an empty key");
}
const tolerance = 300; // seconds
const maxBody = 1 << 20;

function isSigned(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": moment } = headers;
  const words = headers["webhook-signature"] ?? "";
  // Written this way round, the comparison also refuses NaN.
  if (!(Math.abs(Date.now() / 1000 - Number(moment)) <= tolerance)) return false;
  const right = keys.map((key) => {
    // `body` holds the received bytes, not JSON written anew.
    const hmac = createHmac("sha256", key).update(`${id}.${moment}.`).update(body);
    return Buffer.from("v1," + hmac.digest("base64"));
  });
  const given = words.split(" ").map((word) => Buffer.from(word));
  const equal = (one, other) => one.length === other.length && timingSafeEqual(one, other);
  return given.some((one) => right.some((other) => equal(one, other)));
}

// Replace this by a table of your database. A set in memory is lost with the process, and several
// processes do not share it.
const done = new Set();

// Does the work. Returns false if it was done before. With a database, commit the work and the id
// in one transaction.
async function take(id, body) {
  if (done.has(id)) return false;
  console.log("did", id); // your work
  done.add(id); // after the work: delayd calls again for work that failed
  return true;
}

async function read(request) {
  const chunks = [];
  let length = 0;
  for await (const chunk of request) {
    if ((length += chunk.length) > maxBody) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

async function answer(request) {
  const body = await read(request);
  if (body === undefined) return [413, { dm_error: 413 }];
  if (!isSigned(request.headers, body)) return [401, { dm_error: 401 }];
  const isNew = await take(request.headers["webhook-id"], body);
  return [200, isNew ? { dm_error: 0 } : { dm_error: 0, duplicate: true }];
}

const server = createServer(async (request, response) => {
  const [status, json] = await answer(request).catch((error) => {
    console.error(error);
    return [500, { dm_error: 500 }]; // not done: delayd calls again
  });
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(json));
});
server.listen(process.env.PORT ?? 9000, "127.0.0.1", () => {
  console.log("listens on port", server.address().port);
});
