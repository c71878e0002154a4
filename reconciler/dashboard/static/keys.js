// Keys for people who prefer them. Everything works without this script. The keys can be switched off, because speech
// input may type them by mistake.

const help = document.getElementById("keys");
const on = document.getElementById("keys-on");
const sections = new Map([...document.querySelectorAll("[data-key]")].map((a) => [a.dataset.key, a]));
const off = "sandbox-keys-off"; // in the browser's storage while the keys are off

for (const [key, link] of sections) {
  const row = document.createElement("div");
  const name = document.createElement("dt");
  const pressed = document.createElement("kbd");
  const what = document.createElement("dd");
  pressed.textContent = key;
  what.textContent = link.textContent.toLowerCase();
  name.append(pressed);
  row.append(name, what);
  document.getElementById("keys-sections").append(row);
}
on.checked = localStorage.getItem(off) === null;
on.addEventListener("change", () => { on.checked ? localStorage.removeItem(off) : localStorage.setItem(off, "1"); });

const search = () => document.querySelector("main input[type=search]");
if (location.hash === "#q") search()?.focus();

let going = 0; // when g was pressed, in ms
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || help.open) return;
  if (event.target.closest("input:not([type=checkbox]), select, textarea, [contenteditable]")) return;
  const key = event.key;
  if (key === "?") { // stays available, to switch the keys on again
    event.preventDefault();
    help.showModal();
    return;
  }
  if (!on.checked) return;
  const went = Date.now() - going < 1500;
  going = 0;
  if (went && sections.has(key)) {
    location.href = sections.get(key).href;
  } else if (key === "g") {
    going = Date.now();
  } else if (key === "/") {
    event.preventDefault();
    const field = search();
    if (field) {
      field.focus();
      field.select();
    } else {
      location.href = "/ui/leases#q";
    }
  }
});
