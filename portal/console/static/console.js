"use strict";
// One stream tells that something changed; the parts of the page that care fetch themselves again.
const live = document.getElementById("live");
let stream;
let isHeld = false;

function say(state, text) {
  if (!live || live.dataset.state === state) return;
  live.dataset.state = state;
  live.textContent = text;
}

// Whoever edits a form, or reads a dialog, is not disturbed.
const isEditing = () => document.querySelector(".editing, .dirty, dialog[open]") !== null;

function changed() {
  isHeld = isEditing();
  if (isHeld) { say("held", "waits for your form"); return; }
  if (live?.dataset.state === "held") say("on", "live");
  htmx.trigger(document.body, "portal:changed");
}

// A part that was asked for before the editing began comes too late.
document.addEventListener("htmx:before:swap", event => {
  if (!event.detail.ctx.sourceElement.matches("[hx-trigger^='portal:changed']") || !isEditing()) return;
  event.preventDefault();
  isHeld = true;
});

function listen() {
  if (stream || document.hidden || !document.body.dataset.live) return;
  stream = new EventSource(document.body.dataset.live);
  stream.onopen = () => say("on", "live"); // it begins with an event, which makes up for what was missed
  stream.onerror = () => {
    say("lost", "lost the portal, trying again");
    if (stream?.readyState !== EventSource.CLOSED) return;
    stream = undefined; // an answer that is no stream: the browser does not try again by itself
    setTimeout(listen, 3000);
  };
  stream.addEventListener("changed", changed);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) { listen(); return; }
  stream?.close(); // a browser opens six connections to a host
  stream = undefined;
});
listen();

const isChanged = field => "defaultValue" in field && (field.value !== field.defaultValue || field.checked !== field.defaultChecked);
document.addEventListener("input", event => {
  const form = event.target.closest("main form[method=post]");
  form?.classList.toggle("dirty", [...form.elements].some(isChanged));
});
document.addEventListener("htmx:after:swap", () => {
  const count = document.getElementById("nav-count");
  document.title = (count.hidden ? "" : `(${count.textContent}) `) + document.title.replace(/^\(\d+\) /, "");
});
// The session has ended: its page is the door.
document.addEventListener("htmx:response:error", event => {
  if (event.detail.ctx.response.status === 401) location.reload();
});

setInterval(() => { if (isHeld && !isEditing()) changed(); }, 2000);
setInterval(() => { if (!document.hidden) changed(); }, 60000); // for the texts of times

document.addEventListener("click", event => {
  const row = event.target.closest("[data-href]");
  const opener = event.target.closest("[data-open]");
  if (opener) document.getElementById(opener.dataset.open).showModal();
  else if (row && !event.target.closest("a, button, input") && !String(getSelection())) location.href = row.dataset.href;
});

// Keys: rows and calls are `[data-href]`, `[data-item]`.
let isGoing = false;
function step(by) {
  const items = [...document.querySelectorAll("main [data-href], main [data-item]")].filter(item => item.offsetParent);
  const at = items.indexOf(document.activeElement?.closest("[data-href], [data-item]"));
  const next = items[Math.max(0, Math.min(items.length - 1, at + by))];
  const target = next?.matches("a") ? next : next?.querySelector("a, button, summary");
  target?.focus({ preventScroll: true });
  next?.scrollIntoView({ block: "nearest" });
}
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (isGoing) {
    isGoing = false;
    document.querySelector(`[data-key="${CSS.escape(event.key)}"]`)?.click();
  } else if (event.key === "g") {
    isGoing = true;
    setTimeout(() => { isGoing = false; }, 900);
  } else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  else if (event.key === "?") document.getElementById("keys").showModal();
  else if (event.key === "/") {
    event.preventDefault();
    const search = document.querySelector("input[type=search]");
    if (search) search.focus();
    else document.querySelector('[data-key="r"]').click();
  }
});
