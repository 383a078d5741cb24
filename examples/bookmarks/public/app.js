const part = (id) => document.getElementById(id);
const main = document.querySelector("main");
let next = 0;

/** Asks the API. A problem is shown, and thrown. */
async function ask(method, path, body) {
  const options = { method, body, headers: {} };
  if (body && !(body instanceof FormData)) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  const response = await fetch(`/api/${path}`, options);
  const content = response.status === 204 ? null : await response.json();
  part("problem").textContent = response.ok ? "" : content.detail ?? content.title;
  if (!response.ok) throw Object.assign(new Error(content.title), { status: response.status });
  return content;
}

/** An item of the list; text from others is never markup. */
function show(bookmark) {
  const link = document.createElement("a");
  link.href = bookmark.url;
  link.textContent = bookmark.title;
  const item = document.createElement("li");
  item.append(link, ` ${bookmark.tags.map((tag) => `#${tag}`).join(" ")} (${bookmark.added_by})`);
  return item;
}

async function more() {
  const page = await ask("GET", `bookmarks?after=${next}`);
  part("bookmarks").append(...page.bookmarks.map(show));
  next = page.next ?? next;
  part("more").hidden = page.next === null;
}

async function open() {
  part("bookmarks").replaceChildren();
  next = 0;
  try {
    await more();
  } catch (problem) {
    part("sign-in").hidden = problem.status !== 401;
    return;
  }
  part("sign-in").hidden = true;
  main.hidden = false;
  // The browser comes back by itself, and gets what it has missed.
  const events = new EventSource("/api/events");
  events.addEventListener("added", (event) => {
    if (part("more").hidden) part("bookmarks").append(show(JSON.parse(event.data)));
  });
  for (const name of ["imported", "missed"]) events.addEventListener(name, () => location.reload());
}

function submitted(id, act) {
  part(id).addEventListener("submit", async (event) => {
    event.preventDefault();
    await act(new FormData(event.target));
    event.target.reset();
  });
}

submitted("sign-in", async (form) => {
  await ask("POST", "session", Object.fromEntries(form));
  await open();
});
submitted("add", (form) => {
  const tags = form.get("tags").split(/\s+/).filter(Boolean);
  return ask("POST", "bookmarks", { ...Object.fromEntries(form), tags });
});
submitted("import", (form) => ask("POST", "import", form));
part("more").addEventListener("click", more);
part("sign-out").addEventListener("click", async () => {
  await ask("DELETE", "session");
  location.reload();
});
open();
