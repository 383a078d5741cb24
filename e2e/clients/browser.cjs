// A browser and a person at a listing: Chromium without a window, by its DevTools protocol over two
// pipes. Usage: node browser.cjs CHROMIUM ADDRESS FOLDER; FOLDER has `one.txt` and `two.txt`, and gets
// the pictures. Ends with 0 if all is as expected, and says else what is not.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const { browse } = require('./devtools.cjs');

const [chromium, address, folder] = process.argv.slice(2);
const { browser, call, end, event } = browse(chromium, folder);

function expect(is, what) {
  if (!is) throw new Error('not so: ' + what);
}

async function run() {
  const { targetId } = await call('Target.createTarget', { url: 'about:blank' });
  const { sessionId } = await call('Target.attachToTarget', { targetId, flatten: true });
  const page = (method, params) => call(method, params, sessionId);
  await page('Page.enable');
  await page('Runtime.enable');
  await page('DOM.enable');
  await page('Log.enable');
  const complaints = [];
  browser.stdio[4].on('data', (data) => {
    if (String(data).includes('Content Security Policy')) complaints.push(String(data));
  });

  const open = async (target) => {
    const loaded = event('Page.loadEventFired');
    await page('Page.navigate', { url: address + target });
    await loaded;
  };
  const value = async (expression) => {
    const { result, exceptionDetails } = await page('Runtime.evaluate', {
      expression, returnByValue: true, awaitPromise: true,
    });
    if (exceptionDetails) throw new Error(expression + ': ' + exceptionDetails.text);
    return result.value;
  };
  // What a person does that leads to another page, or to the same one anew.
  const leading = async (expression) => {
    const loaded = event('Page.loadEventFired');
    await value(expression);
    await loaded;
  };
  const until = async (expression) => {
    while (!await value(expression)) await new Promise((done) => setTimeout(done, 20));
  };
  const choose = async (...names) => {
    const { root } = await page('DOM.getDocument');
    const { nodeId } = await page('DOM.querySelector', { nodeId: root.nodeId, selector: '#upload input[type=file]' });
    await page('DOM.setFileInputFiles', { nodeId, files: names.map((name) => path.join(folder, name)) });
  };
  const picture = async (name) => {
    const { data } = await page('Page.captureScreenshot', {});
    fs.writeFileSync(path.join(folder, name), Buffer.from(data, 'base64'));
  };
  const size = (width, mobile) => page('Emulation.setDeviceMetricsOverride', {
    width, height: 900, deviceScaleFactor: 1, mobile,
  });
  const names = () => value("Array.from(document.querySelectorAll('#entries tr')).filter((row) => "
    + "row.checkVisibility()).map((row) => row.cells[0].textContent).join(' ')");
  const submit = (selector) => leading(`document.querySelector('${selector}').requestSubmit()`);

  // With its script: it filters while one types, and stores one file after another.
  await size(1100, false);
  await open('/');
  const filter = "document.querySelector('#filter input[type=search]')";
  await value(`${filter}.value = 'ALPH'; ${filter}.dispatchEvent(new Event('input'))`);
  expect(await names() === 'alpha.txt', 'the script filters: ' + await names());
  await picture('desktop.png');
  await choose('one.txt', 'two.txt');
  await submit('#upload');
  expect((await names()).includes('one.txt two.txt'), 'the script stores files: ' + await names());
  await choose('one.txt');
  await value("document.querySelector('#upload').requestSubmit()");
  await until("document.querySelector('#told').value.includes('one.txt is there already')");
  await value("document.querySelector('#upload [name=replace]').click()");
  await submit('#upload');
  // What is dropped anywhere on the page.
  await leading("{ const data = new DataTransfer(); data.items.add(new File(['dropped'], 'a & b %.txt'));"
    + " document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true })) }");
  expect((await names()).includes('a & b %.txt'), 'a drop stores a file: ' + await names());
  // Nothing of a README is more than text.
  expect(await value("document.querySelector('section h3').textContent") === 'Title', 'a README is rendered');
  expect(await value("document.querySelectorAll('section img, section script, section style').length") === 0,
    'a README has no element of its own');
  expect(await value('window.fooled === undefined'), 'a README runs nothing');
  expect(complaints.length === 0, 'nothing is refused by the policy: ' + complaints[0]);

  // On a phone all columns are there, and nothing is wider than the screen.
  await size(360, true);
  await open('/');
  expect(await value("document.querySelector('#entries time').checkVisibility()"), 'a phone shows the date');
  expect(await value('document.documentElement.scrollWidth <= innerWidth'), 'a phone shows the whole width');
  await picture('phone.png');

  // Without a script the forms do the same.
  await page('Emulation.setScriptExecutionDisabled', { value: true });
  await open('/');
  await value(`${filter}.value = 'alph'`);
  await submit('#filter');
  expect(await names() === 'alpha.txt', 'a form filters: ' + await names());
  await open('/');
  await value("document.querySelector('[name=directory]').value = 'new dir'");
  await leading("document.querySelector('[name=directory]').form.requestSubmit()");
  expect(await value('location.pathname') === '/new%20dir/', 'a form makes a directory and leads there');
  await choose('one.txt', 'two.txt');
  await submit('#upload');
  expect(await names() === 'one.txt two.txt', 'a form stores files: ' + await names());
  await choose('two.txt');
  await submit('#upload');
  expect((await value('document.body.textContent')).includes('two.txt: '), 'a form says what is there already');
  await picture('refused.png');
  await leading("document.querySelector('a').click()");
  expect(await value('location.pathname') === '/new%20dir/', 'the page leads back');

  // A page of another origin sends the same form.
  const foreign = "<form method='post' enctype='multipart/form-data' action='" + address
    + "/'><input name='directory' value='foreign'></form>";
  await page('Page.navigate', { url: 'data:text/html,' + encodeURIComponent(foreign) });
  await until("document.querySelector('form') !== null && document.readyState === 'complete'");
  await leading("document.querySelector('form').submit()");
  expect((await value('document.body.textContent')).includes('403')
    || (await value('document.body.textContent')).includes('another'), 'a foreign form is refused');
}

run().then(() => end(), end);
