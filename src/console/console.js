// Keeps the parts of a page up to date that say so: <section data-refresh="SECONDS" id="…"> is replaced by the section of
// the same id of the page itself. A page that is not visible, and a part in which somebody types, has the focus of the
// keyboard or selects text, stay as they are.
"use strict";

function isBusy(section) {
  const selection = document.getSelection();
  const isSelecting = selection && !selection.isCollapsed && section.contains(selection.anchorNode);
  return document.hidden || section.contains(document.activeElement) || isSelecting;
}

async function refresh(section) {
  const response = await fetch(location.href, { headers: { accept: "text/html", "x-console-refresh": "1" }, redirect: "error" });
  if (!response.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const fresh = page.getElementById(section.id);
  if (fresh && !isBusy(section)) section.replaceChildren(...fresh.childNodes);
}

for (const section of document.querySelectorAll("[data-refresh]")) {
  const seconds = Number(section.dataset.refresh);
  const again = () => setTimeout(async () => {
    // A gateway that restarts answers again soon.
    if (!isBusy(section)) await refresh(section).catch(() => {});
    again();
  }, seconds * 1000);
  again();
}

// A key that is shown once is selected as a whole, to be copied.
for (const field of document.querySelectorAll("input[data-select]")) {
  field.addEventListener("focus", () => field.select());
}
