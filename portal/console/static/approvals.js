"use strict";
// What the forms about calls do more than forms do by themselves. Editing and denying are `details`.
document.addEventListener("toggle", event => {
  const form = event.target.closest?.("form.ask");
  if (!form) return;
  const open = form.querySelector("details[open]");
  form.classList.toggle("editing", open !== null); // which holds back what would replace the form
  if (!open) form.classList.remove("dirty");
  if (event.target.open) form.querySelector(event.target.matches(".deny") ? "[name=reason]" : ".in")?.focus();
}, true);

function countChosen() {
  for (const button of document.querySelectorAll("[data-chosen]")) {
    const chosen = button.form.querySelectorAll("[name=seq]:checked").length;
    button.textContent = `Approve ${chosen} call${chosen === 1 ? "" : "s"}`;
    button.disabled = !chosen;
  }
}
document.addEventListener("change", countChosen);
document.addEventListener("htmx:after:swap", () => {
  countChosen();
  // Whoever decided by a key goes on from there, but not on a button that decides about the next call.
  if (document.activeElement === document.body) document.getElementById("main").focus({ preventScroll: true });
});
countChosen();

// htmx shows no answer of 5xx, and says nothing if none comes. Then no one knows whether the decision arrived.
const lost = Object.assign(document.createElement("p"), {
  className: "flash bad",
  role: "alert",
  textContent: "No answer came from the portal, so this may not be decided. If the call still waits here, try again.",
});
function tell(event, ...told) {
  if (event.detail.ctx?.sourceElement.matches("form.ask")) document.getElementById("said").replaceChildren(...told);
}
document.addEventListener("htmx:before:request", event => tell(event));
document.addEventListener("htmx:error", event => tell(event, lost));
document.addEventListener("htmx:response:error", event => {
  if (event.detail.ctx.response.status >= 500) tell(event, lost);
});

function look() {
  const gone = document.getElementById("gone");
  if (gone) gone.hidden = !location.hash.startsWith("#run_") || !!document.getElementById(location.hash.slice(1));
}
window.addEventListener("hashchange", look);
look();

// Keys: of the call that has the focus, or of the only one. None of them decides.
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  const forms = document.querySelectorAll("form.ask");
  const form = document.activeElement?.closest("form.ask") ?? (forms.length === 1 ? forms[0] : null);
  const target = { a: ".as-is, [data-chosen]", e: ".edit > summary", d: ".deny > summary" }[event.key];
  const found = target && form?.querySelector(target);
  if (!found || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  if (event.key === "a") found.focus();
  else found.click();
});
