// Tests of the status page without a browser. Arguments: the page, its Content-Security-Policy, and
// an answer of /status.json from a server that has served, each in a file.
"use strict";
const assert = require("node:assert/strict");
const crypto = require("node:crypto");
const fs = require("node:fs");
const vm = require("node:vm");

const [page, policy, answer] = process.argv.slice(2).map((path) => fs.readFileSync(path, "utf8"));
const status = JSON.parse(answer);

/** The text of the only element of a kind. */
function inside(tag) {
  const found = [...page.matchAll(new RegExp(`<${tag}>(.*?)</${tag}>`, "gs"))];
  assert.equal(found.length, 1, `one ${tag}`);
  return found[0][1];
}

const holder = { exports: {} };
new vm.Script(inside("script")).runInNewContext({ module: holder });
const it = holder.exports;
// Values come from another context, whose arrays are not ours.
const same = (found, expected) => assert.deepEqual(JSON.parse(JSON.stringify(found)), expected);

/** A document with as much of the DOM as the page uses. */
class Node {
  constructor(nodeType, localName, nodeValue) {
    Object.assign(this, { nodeType, localName, nodeValue, list: [], parent: null });
    this.attributes = new Map();
  }
  get firstChild() { return this.list[0] ?? null; }
  get nextSibling() { return this.parent.list[this.parent.list.indexOf(this) + 1] ?? null; }
  insertBefore(node, at) {
    const place = at === null ? this.list.length : this.list.indexOf(at);
    assert.ok(place >= 0 && node.parent === null);
    this.list.splice(place, 0, node);
    node.parent = this;
    return node;
  }
  removeChild(node) {
    assert.equal(node.parent, this);
    this.list.splice(this.list.indexOf(node), 1);
    node.parent = null;
  }
  getAttributeNames() { return [...this.attributes.keys()]; }
  getAttribute(name) { return this.attributes.get(name) ?? null; }
  setAttribute(name, value) { this.attributes.set(name, String(value)); }
  removeAttribute(name) { this.attributes.delete(name); }
  get text() { return this.nodeType === 3 ? this.nodeValue : this.list.map((n) => n.text).join(""); }
  all(tag) {
    const below = this.list.flatMap((node) => node.all(tag));
    return this.localName === tag ? [this, ...below] : below;
  }
}
const document = {
  createElement: (tag) => new Node(1, tag),
  createElementNS: (_, tag) => new Node(1, tag),
  createTextNode: (words) => new Node(3, undefined, words),
};

/** The same value, where reading a member that is not there fails. */
function strict(value, path = "status") {
  if (typeof value !== "object" || value === null) return value;
  return new Proxy(value, {
    get(target, name) {
      const known = typeof name === "symbol" || name in target || name === "toJSON";
      assert.ok(known, `${path}.${String(name)} is not in /status.json`);
      const found = target[name];
      return typeof found === "function" ? found : strict(found, `${path}.${String(name)}`);
    },
  });
}

/** The samples of a metric. */
const samples = (answer, name) => answer.metrics[`flatpath_${name}`].samples;

/** A later answer: counts have grown. */
function later(before, seconds) {
  const after = structuredClone(before);
  after.uptime_seconds += seconds;
  for (const [name, more] of [["sent_bytes_total", 2048], ["connections_accepted_total", 3],
    ["requests_total", 10]]) {
    for (const one of samples(after, name)) one.value += more * seconds;
  }
  for (const one of samples(after, "turn_seconds")) {
    one.counts[3] += 1000;
    one.value += 1000;
    one.sum += seconds / 2;
  }
  return after;
}

/** The same answer with other samples. */
function resampled(answer, change) {
  const metrics = Object.entries(answer.metrics).map(([name, metric]) =>
    [name, { ...metric, samples: change(metric.samples, name) }]);
  return { ...answer, metrics: Object.fromEntries(metrics) };
}

function draw(past, hover = null) {
  const root = new Node(1, "div");
  it.fit(document, root, [it.view(past, 5000, hover)], false);
  return root;
}

const tests = {
  only_what_is_in_the_page_may_run() {
    for (const [tag, directive] of [["script", "script-src"], ["style", "style-src"]]) {
      const hash = crypto.createHash("sha256").update(inside(tag)).digest("base64");
      const expected = `${directive} 'sha256-${hash}';`;
      assert.ok(policy.includes(expected), `write into page.rs: ${expected}`);
    }
    assert.ok(policy.startsWith("default-src 'none';") && !policy.includes("unsafe"));
    for (const word of ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
      "style=", "onclick", "http:", "https:"]) {
      const used = page.replace("http://www.w3.org/2000/svg", "").includes(word);
      assert.ok(!used, `${word} is in the page`);
    }
  },
  numbers_are_told_in_few_digits() {
    for (const [number, words] of [[0, "0"], [7, "7"], [0.254, "0.25"], [12.345, "12.3"],
      [1234, "1,234"], [9999, "9,999"], [12345, "12.3 k"], [999500, "1 M"], [2.5e9, "2.5 G"],
      [null, "–"]]) {
      assert.equal(it.amount(number), words);
    }
    for (const [number, words] of [[0, "0 B"], [1023, "1,023 B"], [1024, "1 KiB"],
      [1536, "1.5 KiB"], [3 * 2 ** 40, "3 TiB"], [null, "–"]]) {
      assert.equal(it.bytes(number), words);
    }
    for (const [seconds, words] of [[0, "0 s"], [5e-9, "5 ns"], [1.024e-6, "1.02 µs"],
      [0.0042, "4.2 ms"], [59.6, "59.6 s"], [100, "1 min 40 s"], [7261, "2 h 1 min"],
      [200000, "2 d 7 h"], [null, "–"]]) {
      assert.equal(it.time(seconds), words);
    }
    assert.equal(it.listed({ a: 0, b: 2, c: 12000 }), "b 2, c 12 k");
  },
  quantiles_are_bounds_of_buckets() {
    const bounds = [1, 2, 4];
    assert.equal(it.quantile([0, 0, 0, 0], bounds, 0.5), 0);
    assert.equal(it.quantile([0, 98, 1, 1], bounds, 0.5), 2);
    assert.equal(it.quantile([0, 98, 1, 1], bounds, 0.99), 4);
    assert.equal(it.quantile([0, 0, 0, 1], bounds, 0.5), null);
    assert.equal(it.atMost(null, bounds), "> 4 s");
    assert.equal(it.atMost(2, bounds), "≤ 2 s");
    assert.equal(it.atMost(0, bounds), "–");
  },
  rates_are_by_the_clock_of_the_server() {
    const at = (seconds, count) => ({ uptime_seconds: seconds, count });
    const pick = (one) => one.count;
    const samples = [at(0, 0), at(2, 20), at(2, 20), at(3, null), at(4, 50)];
    same(it.rates(samples, pick), [10, null, null, null]);
    assert.equal(it.rate([at(0, 0), at(4, 8)], pick), 2);
    assert.equal(it.rate([at(0, 0)], pick), null);
    assert.equal(it.growth([at(0, 5), at(1, 8)], pick), 3);
  },
  the_past_has_a_bound_and_ends_with_the_process() {
    let past = it.nothing();
    for (let second = 0; second < 300; second += 1) past = it.remember(past, later(status, second));
    assert.equal(past.samples.length, 121);
    past = it.lose(it.lose(past, 1000, "first"), 2000, "second");
    assert.equal(past.lost, 1000, "since the first failure");
    past = it.remember(past, { ...later(status, 301), pid: status.pid + 1 });
    same([past.samples.length, past.lost, past.restarted], [1, null, true]);
    past = it.remember(it.remember(it.nothing(), later(status, 9)), status);
    same([past.samples.length, past.restarted], [1, true]);
  },
  every_member_that_is_shown_is_in_an_answer() {
    const handler = { listener: "http", address: "a", inline: true, thread: 0, seconds: 9 };
    const turns = [{ thread: 0, listener: "http", address: "a" }];
    const slow = { ...later(status, 1), slow_handlers: [handler], turns };
    samples(slow, "turn_age_seconds")[0].value = 2;
    const unknown = resampled(slow, (own, name) => (name.startsWith("process_") ? [] : own));
    for (const last of [later(status, 1), slow, unknown]) {
      const past = it.remember(it.remember(it.nothing(), strict(status)), strict(last));
      const root = draw(past, { chart: "Requests", at: 1 });
      assert.equal(root.all("h2").length, 8);
      assert.ok(!/undefined|NaN|\[object/.test(root.text), root.text);
      for (const node of root.all("td").concat(root.all("th"))) {
        assert.ok(node.text === "" || node.getAttribute("title"), `${node.text} is explained`);
      }
    }
    // Before the server runs there is nothing to list.
    const none = { ...resampled(status, () => []), state: "starting", uptime_seconds: 0 };
    assert.ok(draw(it.remember(it.nothing(), strict(none))).text.includes("starting"));
  },
  every_metric_is_on_the_page_and_no_other() {
    const all = resampled(status, (own) => (own.length > 0
      ? own.map((one) => ({ ...one, value: 7 })) : [{ labels: {}, value: 7 }]));
    const root = draw(it.remember(it.nothing(), all));
    const others = new Set(root.all("th").map((node) => node.text));
    for (const name of Object.keys(status.metrics)) {
      assert.ok(it.used.has(name) !== others.has(name), `${name} is shown once`);
    }
    assert.ok(it.used.has("flatpath_connections") && others.has("flatpath_signals_total"));
    for (const name of it.used) assert.ok(name in status.metrics, `there is no ${name}`);
    assert.ok(root.text.includes("app_logins_totalby=key7"), "a metric of the program");
  },
  what_needs_a_person_is_told() {
    const bad = later(status, 2);
    samples(bad, "oldest_queued_seconds")[0].value = 3;
    samples(bad, "stalls_refused_total")[0].value += 7;
    samples(bad, "turn_age_seconds")[0].value = 4;
    const root = draw(it.remember(it.remember(it.nothing(), status), bad));
    for (const words of ["has waited for a worker for 3 s", "has been busy for 4 s",
      "7 requests were refused"]) {
      assert.ok(root.text.includes(words), words);
    }
    assert.ok(draw(it.lose(it.nothing(), 1000, "no")).text.includes("No answer for 4 s (no)"));
    const lost = it.lose(it.remember(it.nothing(), status), 1000, "no");
    assert.ok(draw(lost).text.includes("What is shown is the last answer"));
  },
  other_metrics_that_are_zero_are_left_out() {
    const sample = (kind, value) => ({ labels: { kind }, value });
    const metric = (...own) => ({ kind: "counter", unit: "bytes", help: "what", samples: own });
    const more = { some: metric(sample("zero", 0), sample("one", 2048)), none: metric(sample("x", 0)) };
    const only = resampled(status, (own, name) => (it.used.has(name) ? own : []));
    const shown = { ...only, metrics: { ...only.metrics, ...more } };
    const text = draw(it.remember(it.nothing(), shown)).text;
    assert.ok(text.includes("kind=one2 KiB") && text.includes("left out because they are 0: 2"), text);
    assert.ok(!text.includes("kind=zero") && !text.includes("kind=x"), text);
  },
  growth_is_told_with_its_time() {
    const worse = later(status, 37);
    samples(worse, "handler_panics_total")[0].value += 2;
    const text = draw(it.remember(it.remember(it.nothing(), status), worse)).text;
    assert.ok(text.includes("2 handlers panicked in the last 37 s."), text);
  },
  names_are_text_whatever_is_in_them() {
    const named = structuredClone(status);
    samples(named, "connections")[0].labels.address = "<img src=x onerror=alert(1)>\"'&";
    const root = draw(it.remember(it.nothing(), named));
    assert.equal(root.all("img").length, 0);
    assert.ok(root.text.includes("<img src=x onerror=alert(1)>\"'&"));
  },
  a_redraw_keeps_the_elements() {
    const root = new Node(1, "div");
    const past = it.remember(it.nothing(), status);
    const show = (past) => it.fit(document, root, [it.view(past, 0, null)], false);
    show(past);
    const kept = root.all("td");
    show(it.lose(it.remember(past, later(status, 1)), 0, "no"));
    assert.ok(root.text.includes("No answer"));
    show(it.remember(past, later(status, 2)));
    assert.ok(!root.text.includes("No answer"));
    const now = root.all("td");
    assert.ok(kept.length > 20 && kept.every((node, at) => node === now[at]));
  },
};

for (const [name, test] of Object.entries(tests)) {
  test();
  console.log(`ok ${name}`);
}
