// Uploads by tus-js-client: whole, with the first bytes in the POST, of unknown length, aborted and
// resumed, by POST alone, two at once, and terminated.
//
// Usage: node tus_js_client.cjs URL FILE. Says `stored NAME` for each file that the server must have.
"use strict";

const fs = require("fs");
const tus = require("tus-js-client");

const [endpoint, path] = process.argv.slice(2);
const size = fs.statSync(path).size;

function start(name, options, source = fs.createReadStream(path)) {
  let upload;
  const done = new Promise((resolve, reject) => {
    upload = new tus.Upload(source, {
      endpoint,
      metadata: { filename: name, filetype: "application/octet-stream" },
      uploadSize: size,
      retryDelays: [100, 200, 400, 800],
      onError: reject,
      onSuccess: resolve,
      ...options,
    });
  });
  return { upload, done };
}

async function store(name, options, source) {
  const { upload, done } = start(name, options, source);
  upload.start();
  await done;
  console.log(`stored ${name}`);
}

// Starts an upload and aborts it after its first chunk; gives its address.
function interrupted(name) {
  return new Promise((resolve, reject) => {
    const { upload } = start(name, {
      chunkSize: 600_000,
      onError: reject,
      onChunkComplete: () => upload.abort().then(() => resolve(upload.url), reject),
    });
    upload.start();
  });
}

async function main() {
  await store("whole", {});
  await store("chunked", { chunkSize: 700_000 });
  await store("creation", { chunkSize: 700_000, uploadDataDuringCreation: true });
  await store("overridden", { chunkSize: 900_000, overridePatchMethod: true });
  // From memory: of a stream this client announces a last chunk that is longer than what follows.
  const deferred = { chunkSize: 800_000, uploadSize: undefined, uploadLengthDeferred: true };
  await store("deferred", deferred, fs.readFileSync(path));
  const uploadUrl = await interrupted("resumed");
  await store("resumed", { uploadUrl });
  await Promise.all([
    store("both", { chunkSize: 300_000 }),
    store("both", { chunkSize: 200_000 }),
  ]);
  const doomed = await interrupted("terminated");
  await tus.Upload.terminate(doomed, { retryDelays: [] });
  const answer = await fetch(doomed, { method: "HEAD", headers: { "Tus-Resumable": "1.0.0" } });
  if (answer.status !== 404) throw new Error(`terminated, and still ${answer.status}`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
