// Keeps the page up to date. The server sends that something has changed, but not what. The script then reloads the page
// and replaces the regions that differ. Without this script, users reload pages by hand.

const status = document.getElementById("live");
let ahead = Number(document.body.dataset.now) - Date.now(); // ms by which the server's clock is ahead of the browser's
const again = 700; // ms between a change and the reload, to batch changes

function say(text) {
  if (status) {
    status.hidden = text === "";
    if (status.textContent !== text) status.textContent = text;
  }
}

// read fetches this page again. XMLHttpRequest parses it without running or loading anything.
function read() {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", location.href);
    request.responseType = "document";
    request.timeout = 30000;
    request.onload = () => {
      const path = new URL(request.responseURL || location.href).pathname;
      if (path !== location.pathname) {
        location.reload(); // the login has ended
      } else if (request.status === 200 && request.response) {
        resolve(request.response);
      } else {
        reject(new Error(`the page was answered with ${request.status}`));
      }
    };
    request.onerror = request.ontimeout = () => reject(new Error("no response"));
    request.send();
  });
}

// key identifies the focused control, to restore the focus after its region was replaced.
function key(element) {
  return element.id ? `#${CSS.escape(element.id)}` : element.getAttribute("href") ? `a[href="${CSS.escape(element.getAttribute("href"))}"]` : "";
}

function replace(region, fresh) {
  if (region.outerHTML === fresh.outerHTML) return;
  const focused = region.contains(document.activeElement) ? key(document.activeElement) : "";
  const open = [...region.querySelectorAll("details")].map((d) => d.open);
  const scrolled = [...region.querySelectorAll("pre")].map((p) => [p.scrollLeft, p.scrollTop]);
  region.replaceWith(fresh);
  fresh.querySelectorAll("details").forEach((d, i) => { d.open = open[i] ?? d.open; });
  fresh.querySelectorAll("pre").forEach((p, i) => { if (scrolled[i]) [p.scrollLeft, p.scrollTop] = scrolled[i]; });
  if (focused) fresh.querySelector(focused)?.focus({ preventScroll: true });
}

async function refresh() {
  const fresh = await read();
  ahead = Number(fresh.body.dataset.now) - Date.now();
  for (const region of document.querySelectorAll("[data-region]")) {
    const other = fresh.getElementById(region.id);
    if (other) replace(region, document.adoptNode(other));
  }
}

// Changes during a reload cause another reload.
let reading = false;
let wanted = false;
async function change() {
  wanted = true;
  if (reading) return;
  reading = true;
  while (wanted) {
    await new Promise((done) => setTimeout(done, again + Math.random() * 300));
    wanted = false;
    try {
      await refresh();
      say("Live");
    } catch {
      say("Not up to date: the reconciler does not respond");
    }
  }
  reading = false;
}

let source = null;
let last = document.body.dataset.live ?? "";
function follow() {
  if (source || !last || document.hidden) return;
  source = new EventSource(last);
  source.onopen = () => say("Live");
  source.addEventListener("changed", (event) => {
    const address = new URL(last, location.href);
    address.searchParams.set("after", event.lastEventId);
    last = address.pathname + address.search;
    change();
  });
  source.onerror = () => {
    say("Not up to date: reconnecting");
    if (source.readyState === EventSource.CLOSED) { // rejected: the login has ended, or too many pages follow
      unfollow();
      setTimeout(() => { change(); follow(); }, 10000);
    }
  };
}

// A hidden page holds no connection, because browsers limit the connections per server.
function unfollow() {
  source?.close();
  source = null;
}

document.addEventListener("visibilitychange", () => { document.hidden ? unfollow() : follow(); });
addEventListener("pagehide", unfollow);
addEventListener("pageshow", follow);
follow();

const every = Number(document.body.dataset.refresh ?? 0);
if (every > 0) setInterval(() => { if (!document.hidden) change(); }, every * 1000);

// Updates relative times, by the server's clock.
const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
function relative(at) {
  const apart = Math.round((at - ahead - Date.now()) / 1000);
  let rest = Math.abs(apart);
  const parts = [];
  for (const [seconds, name] of units) {
    const n = Math.floor(rest / seconds);
    if (n > 0) { parts.push(`${n} ${name}`); rest -= n * seconds; } else if (parts.length > 0) break;
    if (parts.length === 2) break;
  }
  if (parts.length === 0) return "now";
  return apart < 0 ? `${parts.join(" ")} ago` : `in ${parts.join(" ")}`;
}
setInterval(() => {
  if (document.hidden) return;
  for (const time of document.querySelectorAll("time")) {
    const text = relative(Date.parse(time.dateTime));
    if (time.textContent !== text) time.textContent = text;
  }
}, 1000);
