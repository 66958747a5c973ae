// The list of devices: search while typing, switches in rows, and ages of values.
"use strict";
(() => {
  const { all, begin, follow, toast } = window.ferrule;
  const list = () => document.getElementById("devices");

  // A list that htmx has put in has its own live updates.
  begin((part) => {
    const url = (part.id === "devices" ? part : part.querySelector?.("#devices"))?.dataset.liveUrl;
    if (url) follow(url);
    const q = document.getElementById("q");
    if (q && list() && document.activeElement !== q) q.value = new URLSearchParams(location.search).get("q") || "";
  });

  // Search while typing. The address changes, and the list keeps its filters.
  let timer = 0;
  document.addEventListener("input", (e) => {
    if (!list() || !e.target.matches("#q, [data-devices-search]")) return;
    clearTimeout(timer);
    timer = setTimeout(() => {
      const url = new URL(location.href);
      url.searchParams.delete("after");
      if (e.target.value.trim()) url.searchParams.set("q", e.target.value.trim());
      else url.searchParams.delete("q");
      history.replaceState(history.state, "", url);
      window.htmx.ajax("GET", url.pathname + url.search, { target: "#devices", swap: "outerHTML" });
    }, 200);
  });

  // Filters that are not set are not part of the address.
  document.addEventListener("htmx:configRequest", (e) => {
    if (e.detail.elt.id !== "devices-filters") return;
    for (const [name, value] of Object.entries(e.detail.parameters)) if (value === "") delete e.detail.parameters[name];
  });

  // A switch moves when the device has reported its new state, not before.
  document.addEventListener("change", async (e) => {
    const s = e.target;
    if (!s.matches?.("input[data-switch]")) return;
    const wanted = s.checked;
    s.checked = !wanted;
    s.disabled = true;
    s.setAttribute("aria-busy", "true");
    const path = "/api/v1/devices/" + encodeURIComponent(s.dataset.switch) + "/tools/" + encodeURIComponent(s.dataset.tool);
    let error = null;
    try {
      const r = await fetch(path, {
        method: "POST",
        headers: { "Content-Type": "application/json", "X-CSRF-Token": document.querySelector('meta[name="csrf"]').content },
        body: JSON.stringify({ arguments: { [s.dataset.argument]: wanted } }),
      });
      if (!r.ok) error = (await r.json()).error;
    } catch {
      error = { message: "The gateway did not answer.", may_have_run: true };
    }
    s.disabled = "off" in s.dataset; // it may be stopped by now
    s.removeAttribute("aria-busy");
    if (error?.may_have_run) remain(s, "May have run. " + error.message + " It is not sent again.");
    else if (error) toast("Not sent. " + error.message, "notsent", "bad");
  });

  // remain shows a note above the list until the page is left.
  function remain(near, text) {
    const note = document.createElement("p");
    note.className = "out warn";
    note.setAttribute("role", "alert");
    note.textContent = near.dataset.switch + ": " + text;
    (near.closest("section") || list()).prepend(note);
  }

  // Ages of values. data-ago is a time in seconds.
  const age = (t) => {
    const s = Math.max(0, Math.floor(Date.now() / 1000) - t);
    if (s < 2) return "now";
    if (s < 60) return s + " s ago";
    if (s < 3600) return Math.floor(s / 60) + " min ago";
    return null;
  };
  setInterval(() => {
    if (document.documentElement.classList.contains("lost")) return;
    for (const e of all("[data-ago]")) {
      const text = age(Number(e.dataset.ago));
      if (text !== null && e.textContent !== text) e.textContent = text;
    }
  }, 2000);
})();
