// A page in Chromium that uses a server of another origin, by fetch and by tus-js-client. Usage:
// node cross_origin.cjs CHROMIUM PAGE SERVER PROTOCOL FOLDER [TUS]; PAGE is the address of the page,
// whose origin SERVER allows, PROTOCOL is what has to be spoken with SERVER (`http/1.1`, `h2`), TUS
// is a file of tus-js-client for browsers. Ends with 0 if all is as expected, and says else what is
// not.
'use strict';
const fs = require('node:fs');
const { browse } = require('./devtools.cjs');

const [chromium, pageAddress, server, protocol, folder, tus] = process.argv.slice(2);
const { call, end, event } = browse(chromium, folder, ['--ignore-certificate-errors']);

// Runs in the page: what each request came to.
const requests = async (server) => {
  const said = {};
  const tell = async (name, target, options = {}, fields = []) => {
    try {
      const response = await fetch(server + target, options);
      const shown = fields.map((field) => response.headers.get(field));
      const text = await response.text();
      said[name] = [response.status, ...shown, ...(fields.length ? [] : [text.slice(0, 40)])].join(' ');
    } catch (error) {
      said[name] = 'refused';
    }
  };
  const tusFields = { 'Tus-Resumable': '1.0.0' };
  await tell('get', '/file');
  await tell('again', '/file');
  await tell('range', '/file', { headers: { Range: 'bytes=2-4' } }, ['content-range', 'accept-ranges']);
  await tell('none', '/none', {}, ['location']);
  await tell('malformed', '/%', {}, ['location']);
  const tag = (await fetch(server + '/file', { method: 'HEAD' })).headers.get('etag');
  said.tag = String(/^"/.test(tag));
  await tell('unchanged', '/file', { cache: 'no-store', headers: { 'If-None-Match': tag } });
  await tell('revalidated', '/file', { cache: 'no-cache' });
  await tell('put', '/new', { method: 'PUT', body: 'one' });
  await tell('replace', '/new', { method: 'PUT', body: 'two' });
  await tell('condition', '/new', { method: 'PUT', body: 'x', headers: { 'If-None-Match': '*' } });
  await tell('hidden', '/.hidden', { method: 'PUT', body: 'x' });
  await tell('nowhere', '/none/x', { method: 'PUT', body: 'x' });
  await tell('delete', '/file', { method: 'DELETE' }, ['allow']);
  await tell('foreign field', '/file', { headers: { 'X-Foreign': '1' } });
  await tell('foreign method', '/file', { method: 'LOCK' });
  await tell('cookies', '/file', { credentials: 'include' });
  try {
    const created = await fetch(server + '/', { method: 'POST',
      headers: { ...tusFields, 'Upload-Length': '6', 'Upload-Metadata': 'filename dHVz' } });
    const place = new URL(created.headers.get('location'), server + '/').href;
    const patch = (offset, body) => fetch(place, { method: 'PATCH', body, headers: { ...tusFields,
      'Upload-Offset': String(offset), 'Content-Type': 'application/offset+octet-stream' } });
    const first = await patch(0, 'abc');
    const asked = await fetch(place, { method: 'HEAD', headers: tusFields });
    const last = await patch(3, 'def');
    said.tus = [created.status, first.status, first.headers.get('upload-offset'),
      asked.headers.get('upload-offset'), asked.headers.get('upload-length'), last.status].join(' ');
    const other = await fetch(server + '/', { method: 'POST', headers: { ...tusFields, 'Upload-Length': '6' ,
      'Upload-Metadata': 'filename Z29uZQ==' } });
    const gone = new URL(other.headers.get('location'), server + '/').href;
    said['tus end'] = String((await fetch(gone, { method: 'DELETE', headers: tusFields })).status);
  } catch (error) {
    said.tus = String(error);
  }
  if (window.tus) {
    said['tus-js-client'] = await new Promise((resolve) => new tus.Upload(new Blob(['x'.repeat(300000)]), {
      endpoint: server + '/', chunkSize: 100000, retryDelays: [], metadata: { filename: 'by-library' },
      addRequestId: true, onError: (error) => resolve(String(error)), onSuccess: () => resolve('stored'),
    }).start());
  }
  const spoken = performance.getEntriesByType('resource').filter((it) => it.name.startsWith(server));
  said.protocol = [...new Set(spoken.map((it) => it.nextHopProtocol).filter((it) => it))].join(' ');
  return said;
};

const expected = {
  get: '200 contents', again: '200 contents', range: '206 bytes 2-4/8 bytes', none: '404 ',
  malformed: '400 ', tag: 'true', unchanged: '304 ', revalidated: '200 contents', put: '201 ', replace: '204 ',
  condition: '412 412 Precondition Failed\n', hidden: '403 403 Forbidden\n',
  nowhere: '409 there is no such directory; an upload do', delete: '405 GET, HEAD, PUT, POST, PATCH, DELETE, OPTIONS',
  'foreign field': 'refused', 'foreign method': 'refused', cookies: 'refused',
  tus: '201 204 3 3 6 204', 'tus end': '204', protocol,
};

async function run() {
  const { targetId } = await call('Target.createTarget', { url: 'about:blank' });
  const { sessionId } = await call('Target.attachToTarget', { targetId, flatten: true });
  const page = (method, params) => call(method, params, sessionId);
  await page('Page.enable');
  const value = async (expression) => {
    const { result, exceptionDetails } = await page('Runtime.evaluate', {
      expression, returnByValue: true, awaitPromise: true,
    });
    if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
    return result.value;
  };
  const open = async (target) => {
    const loaded = event('Page.loadEventFired');
    await page('Page.navigate', { url: target });
    await loaded;
  };
  await open(pageAddress);
  if (tus) {
    expected['tus-js-client'] = 'stored';
    await value(fs.readFileSync(tus, 'utf8') + '; undefined');
  }
  const said = await value(`(${requests})(${JSON.stringify(server)})`);
  const wrong = [...new Set([...Object.keys(expected), ...Object.keys(said)])]
    .filter((name) => said[name] !== expected[name])
    .map((name) => `${name}: ${JSON.stringify(said[name])}, not ${JSON.stringify(expected[name])}`);
  if (wrong.length) throw new Error(wrong.join('\n'));

  // A page of an origin that is not named reads nothing, and writes nothing.
  await open(pageAddress.replace('127.0.0.1', 'localhost'));
  const all = JSON.stringify(['GET', 'PUT', 'DELETE']);
  const foreign = await value(`Promise.all(${all}.map((method) => fetch('${server}/foreign', { method })`
    + ".then((it) => it.status, () => 'refused')))");
  if (foreign.join() !== 'refused,refused,refused') throw new Error('a foreign page: ' + foreign);
}

run().then(() => end(), end);
