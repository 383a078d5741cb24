// HTTP/2 by Node's own client: files, many at once, parts, uploads, a refused one, a cancelled one.
//
// Usage: node http2_client.cjs BASE-URL CERTIFICATE SERVED-DIRECTORY. Says how many cases passed.
"use strict";
const assert = require("node:assert");
const fs = require("node:fs");
const http2 = require("node:http2");
const path = require("node:path");

const [base, certificate, directory] = process.argv.slice(2);
const read = (name) => fs.readFileSync(path.join(directory, name));
const [small, large] = ["small", "large"].map(read);

function open() {
  const session = http2.connect(base, { ca: fs.readFileSync(certificate) });
  session.on("error", (error) => { throw error; });
  return session;
}

// Sends the parts of a body one by one, and resolves to the whole reply.
function ask(session, headers, parts) {
  return new Promise((resolve, reject) => {
    const stream = session.request(headers, { endStream: !parts });
    const received = [];
    let head;
    stream.on("response", (headers) => { head = headers; });
    stream.on("data", (data) => received.push(data));
    stream.on("error", reject);
    stream.on("close", () => resolve({ head, status: head?.[":status"], body: Buffer.concat(received) }));
    for (const part of parts ?? []) stream.write(part);
    if (parts) stream.end();
  });
}

const cases = {
  async getsAFile(session) {
    const reply = await ask(session, { ":path": "/small" });
    assert.equal(reply.status, 200);
    assert.deepEqual(reply.body, small);
  },
  async asksForAHundredAtOnce(session) {
    const paths = Array.from({ length: 100 }, (_, at) => `/small?${at}`);
    const replies = await Promise.all(paths.map((it) => ask(session, { ":path": it })));
    for (const reply of replies) assert.deepEqual(reply.body, small);
  },
  async getsALargeFileAndAPart(session) {
    assert.ok((await ask(session, { ":path": "/large" })).body.equals(large));
    const part = await ask(session, { ":path": "/large", range: "bytes=70000-1070000" });
    assert.equal(part.status, 206);
    assert.ok(part.body.equals(large.subarray(70_000, 1_070_001)));
  },
  async asksForAHead(session) {
    const reply = await ask(session, { ":method": "HEAD", ":path": "/large" });
    assert.equal(reply.head["content-length"], String(large.length));
    assert.equal(reply.body.length, 0);
  },
  async asksForWhatIsNotThere(session) {
    assert.equal((await ask(session, { ":path": "/absent" })).status, 404);
  },
  async stores(session) {
    const length = { "content-length": large.length };
    for (const headers of [length, {}]) {
      const parts = [large.subarray(0, 1), large.subarray(1, 1 << 20), large.subarray(1 << 20)];
      const asked = { ":method": "PUT", ":path": "/new-by-node", ...headers };
      assert.equal((await ask(session, asked, parts)).status, 201);
      assert.ok(read("new-by-node").equals(large));
      fs.unlinkSync(path.join(directory, "new-by-node"));
    }
  },
  async isRefused(session) {
    const asked = { ":method": "PUT", ":path": "/small/new" };
    const reply = await ask(session, asked, [large]);
    assert.ok(reply.status >= 400 && reply.status < 500, String(reply.status));
  },
  async cancels(session) {
    const stream = session.request({ ":path": "/large" });
    await new Promise((resolve) => { stream.once("data", resolve); });
    const closed = new Promise((resolve) => { stream.once("close", resolve); });
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await closed;
    assert.deepEqual((await ask(session, { ":path": "/small" })).body, small);
  },
};

(async () => {
  const session = open();
  for (const run of Object.values(cases)) await run(session);
  session.close();
  process.stdout.write(`${Object.keys(cases).length} cases\n`);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
