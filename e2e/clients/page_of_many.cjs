// A page in Chromium that has a hundred images, stores what it makes and opens a WebSocket.
//
// Usage: node page_of_many.cjs CHROMIUM BASE-URL FOLDER. The page is at `/`. Ends with 0 if all is as
// expected, and says else what is not.
"use strict";
const { browse } = require("./devtools.cjs");

const [chromium, base, folder] = process.argv.slice(2);
const { call, end, event } = browse(chromium, folder, ["--ignore-certificate-errors"]);

// Runs in the page.
const use = async () => {
  const images = Array.from(document.images, (image) => image.naturalWidth);
  const loaded = performance.getEntriesByType("resource");
  const stored = await fetch("/store", { method: "PUT", body: new Uint8Array(3_000_000).fill(7) });
  const socket = new WebSocket(location.href.replace("http", "ws") + "socket");
  const heard = await new Promise((resolve, reject) => {
    socket.onopen = () => socket.send("from a page");
    socket.onmessage = (message) => resolve(message.data);
    socket.onerror = () => reject(new Error("the socket failed"));
  });
  socket.close();
  return {
    images: images.filter((width) => width === 1).length,
    protocols: [...new Set(loaded.map((it) => it.nextHopProtocol))].join(),
    stored: `${stored.status} ${await stored.text()}`,
    heard,
  };
};

async function run() {
  const { targetId } = await call("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await call("Target.attachToTarget", { targetId, flatten: true });
  const page = (method, params) => call(method, params, sessionId);
  await page("Page.enable");
  await page("Runtime.enable");
  const loaded = event("Page.loadEventFired");
  await page("Page.navigate", { url: base });
  await loaded;
  const asked = { expression: `(${use})()`, returnByValue: true, awaitPromise: true };
  const { result, exceptionDetails } = await page("Runtime.evaluate", asked);
  if (exceptionDetails) throw new Error(exceptionDetails.exception.description);
  const found = JSON.stringify(result.value);
  const wanted = JSON.stringify({
    images: 100, protocols: "h2", stored: "200 3000000", heard: "from a page",
  });
  if (found !== wanted) throw new Error(`${found} is not ${wanted}`);
}

run().then(() => end(), end);
