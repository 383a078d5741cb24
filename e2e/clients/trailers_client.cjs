// Trailers both ways by Node's own clients: `http2`, and `http` over HTTP/1.1.
//
// Usage: node trailers_client.cjs BASE-URL. POST /whole and PUT /streamed take a body with the trailer
// x-sum, and answer "BYTES bytes, x-sum SUM" with the trailer x-sum, which is the number of bytes.
"use strict";
const assert = require("node:assert");
const http = require("node:http");
const http2 = require("node:http2");

const base = new URL(process.argv[2]);

function byHttp2(method, path, parts, sum) {
  return new Promise((resolve, reject) => {
    const session = http2.connect(base.origin);
    session.on("error", reject);
    const head = { ":method": method, ":path": path, te: "trailers" };
    const stream = session.request(head, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "x-sum": sum }));
    let text = "";
    let trailers = {};
    let announced;
    stream.setEncoding("utf8");
    stream.on("response", (headers) => { announced = headers.trailer; });
    stream.on("data", (data) => { text += data; });
    stream.on("trailers", (found) => { trailers = found; });
    stream.on("error", reject);
    stream.on("close", () => {
      session.close();
      resolve({ text, announced, sum: trailers["x-sum"] });
    });
    for (const part of parts) stream.write(part);
    stream.end();
  });
}

function byHttp1(method, path, parts, sum) {
  return new Promise((resolve, reject) => {
    const headers = { te: "trailers", trailer: "x-sum", "transfer-encoding": "chunked" };
    const options = { method, path, headers, host: base.hostname, port: base.port };
    const request = http.request(options, (reply) => {
      let text = "";
      reply.setEncoding("utf8");
      reply.on("data", (data) => { text += data; });
      reply.on("end", () => {
        resolve({ text, announced: reply.headers.trailer, sum: reply.trailers["x-sum"] });
      });
    });
    request.on("error", reject);
    for (const part of parts) request.write(part);
    request.addTrailers({ "x-sum": sum });
    request.end();
  });
}

(async () => {
  let cases = 0;
  const large = Buffer.alloc(100_000, "x");
  for (const ask of [byHttp2, byHttp1]) {
    for (const [method, path] of [["POST", "/whole"], ["PUT", "/streamed"]]) {
      for (const parts of [[], ["hello"], ["a", large, "b"]]) {
        const bytes = parts.reduce((sum, part) => sum + part.length, 0);
        const found = await ask(method, path, parts, String(7 * bytes));
        const text = `${bytes} bytes, x-sum ${7 * bytes}`;
        assert.deepEqual(found, { text, announced: "x-sum", sum: String(bytes) });
        cases += 1;
      }
    }
  }
  process.stdout.write(`${cases} cases\n`);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
