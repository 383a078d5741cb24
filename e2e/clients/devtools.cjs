// Chromium without a window, by its DevTools protocol over two pipes.
'use strict';
const { spawn } = require('node:child_process');
const path = require('node:path');

const PATIENCE_MS = 60000;

// Starts one with a profile in this folder. `call` has it do something and resolves to what it
// says, `event` resolves to the next one of a kind, `end` ends it and this program, with 0 unless
// there is an error.
exports.browse = (chromium, folder, more = []) => {
  const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe',
    '--user-data-dir=' + path.join(folder, 'profile'), ...more, 'about:blank'];
  const browser = spawn(chromium, flags, { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
  const deadline = setTimeout(() => end(new Error('the browser took too long')), PATIENCE_MS);

  function end(error) {
    clearTimeout(deadline);
    browser.kill('SIGKILL');
    if (error) console.error(error.message);
    process.exit(error ? 1 : 0);
  }

  let number = 0;
  let text = '';
  const asked = new Map();
  let waiting = [];
  browser.on('exit', () => end(new Error('the browser has ended')));
  browser.stdio[4].on('data', (data) => {
    text += data;
    const parts = text.split('\0');
    text = parts.pop();
    for (const part of parts) {
      const message = JSON.parse(part);
      if (message.id) {
        const { resolve, reject } = asked.get(message.id);
        asked.delete(message.id);
        if (message.error) reject(new Error(message.error.message));
        else resolve(message.result);
      } else {
        waiting = waiting.filter((it) => !it(message));
      }
    }
  });

  const call = (method, params = {}, sessionId) => {
    const id = ++number;
    browser.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + '\0');
    return new Promise((resolve, reject) => asked.set(id, { resolve, reject }));
  };
  const event = (method) => new Promise((resolve) => {
    waiting.push((message) => message.method === method && (resolve(message.params), true));
  });
  return { browser, call, end, event };
};
