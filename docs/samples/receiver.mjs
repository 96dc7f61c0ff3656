// A receiver of callbacks in Node 18 or later: DELAYD_SECRETS=whsec_… PORT=9000 node receiver.mjs
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

// Several while a secret is rotated, with spaces between them.
const keys = process.env.DELAYD_SECRETS.split(" ").map((secret) => Buffer.from(secret.replace(/^whsec_/, ""), "base64"));
if (!keys.every((key) => key.length)) throw new Error("DELAYD_SECRETS holds no key, and with an empty one everybody could sign");
const tolerance = 300; // seconds
const maxBody = 1 << 20;

function isSigned(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": moment, "webhook-signature": words = "" } = headers;
  // NaN is no small distance either.
  if (!(Math.abs(Date.now() / 1000 - Number(moment)) <= tolerance)) return false;
  const right = keys.map((key) => {
    const hmac = createHmac("sha256", key).update(`${id}.${moment}.`).update(body); // the bytes as they came
    return Buffer.from("v1," + hmac.digest("base64"));
  });
  const given = words.split(" ").map((word) => Buffer.from(word));
  return given.some((one) => right.some((other) => one.length === other.length && timingSafeEqual(one, other)));
}

// Stands for a table of your database: this one forgets with the process, and several processes would not share it.
const done = new Set();

// Does the work once; false if it was done before. With a database the work and the id belong into one transaction.
async function take(id, body) {
  if (done.has(id)) return false;
  console.log("did", id); // your work
  done.add(id); // only now: work that failed is to come again
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
    return [500, { dm_error: 500 }]; // not done: it comes again
  });
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(json));
});
server.listen(process.env.PORT ?? 9000, "127.0.0.1", () => console.log("listens on port", server.address().port));
