// The journal: rows open in place, and new calls come in at the top.
"use strict";
(() => {
  const mostRows = 200;
  let paused = false;
  let waiting = [];

  // A second click on an open row closes it.
  document.addEventListener("click", (e) => {
    const link = e.target.closest("a.open[hx-get]");
    const row = link?.closest("tr");
    if (!row || e.ctrlKey || e.metaKey || e.shiftKey) return;
    const more = row.nextElementSibling;
    if (!more?.classList.contains("more")) return;
    e.preventDefault();
    e.stopPropagation();
    more.remove();
    mark(row, false);
  }, true);
  document.addEventListener("htmx:afterSwap", (e) => {
    const row = e.detail.requestConfig?.elt?.closest?.("tr");
    if (row?.nextElementSibling?.classList.contains("more")) mark(row, true);
  });
  function mark(row, open) {
    row.classList.toggle("open", open);
    row.querySelector("a.open")?.setAttribute("aria-expanded", String(open));
  }

  // put replaces the row of a call, or adds it at the top.
  function put({ id, html, say }) {
    const body = document.getElementById("calls");
    const parts = document.createElement("template");
    parts.innerHTML = html; // drawn by the gateway, which escapes what devices say
    const next = parts.content.querySelector("tr");
    const now = document.getElementById(id);
    if (!body || !next) return;
    document.getElementById("no-calls")?.remove();
    if (now) {
      if (now.contains(document.activeElement)) return;
      if (now.classList.contains("open")) next.classList.add("open");
      now.replaceWith(next);
      if (next.classList.contains("open")) mark(next, true);
    } else {
      next.classList.add("new");
      body.prepend(next);
      if (say) document.getElementById("activity-say").textContent = say;
    }
    window.htmx?.process(next);
    const rows = body.querySelectorAll("tr[id]");
    if (rows.length > mostRows) {
      const last = rows[rows.length - 1];
      if (last.nextElementSibling?.classList.contains("more")) last.nextElementSibling.remove();
      last.remove();
    }
  }

  window.ferrule.on("calls", (rows) => {
    if (!paused) { rows.forEach(put); return; }
    waiting = [...waiting, ...rows].slice(-mostRows);
    label();
  });

  function label() {
    const button = document.querySelector("[data-pause]");
    if (!button) return;
    const count = new Set(waiting.map((row) => row.id)).size;
    button.querySelector("span").textContent = paused ? "Resume" + (count ? ", " + count + " new" : "") : "Pause";
    button.setAttribute("aria-pressed", String(paused));
  }
  document.addEventListener("click", (e) => {
    if (!e.target.closest("[data-pause]")) return;
    paused = !paused;
    if (!paused) { waiting.forEach(put); waiting = []; }
    label();
  });

  window.ferrule.begin((part) => {
    window.ferrule.all("[data-pause]", part).forEach((button) => { button.hidden = false; });
    window.ferrule.all("form[data-filter] [data-submit]", part).forEach((button) => { button.hidden = true; }); // Enter and a choice send the form
  });
  document.addEventListener("change", (e) => {
    if (e.target.matches("form[data-filter] select, form[data-filter] input[type=checkbox]")) e.target.form.requestSubmit(e.target.form.querySelector("[data-submit]"));
  });
})();
