// The pages of a device: forms of tools, switches, the filter, and confirmation.
"use strict";
(() => {
  const { all, begin } = window.ferrule;

  // A slider shows its value, and colors its track up to it.
  function slide(range) {
    const low = Number(range.min), high = Number(range.max);
    range.style.setProperty("--at", ((Number(range.value) - low) / (high - low)) * 100 + "%");
    const out = all("output", range.closest(".field"))[0];
    if (out) out.textContent = range.value.replace("-", "−") + (out.dataset.unit ? " " + out.dataset.unit : "");
  }

  // What cannot be called now is disabled. A tool that the person may never call stays so.
  function off() {
    const note = document.getElementById("tools-off");
    if (!note) return;
    const which = note.dataset.off;
    for (const set of all("fieldset[data-effect]")) {
      set.disabled = "never" in set.dataset || which === "all" || which === "changes" && set.dataset.effect !== "reads";
    }
    const tools = document.getElementById("tools");
    if (tools && tools.dataset.kind !== note.dataset.kind && !document.getElementById("tools-new")) {
      const link = document.createElement("p");
      link.id = "tools-new";
      link.className = "note flat";
      const a = document.createElement("a");
      a.href = location.href;
      a.textContent = "The tools have changed. Load the page again";
      link.append(a);
      tools.before(link);
    }
  }

  // On a phone, the tab of the page may be outside of the screen.
  document.addEventListener("DOMContentLoaded", () => {
    const tabs = document.querySelector(".tabs"), tab = tabs?.querySelector("[aria-current]");
    if (tab) tabs.scrollLeft = tab.offsetLeft - tabs.offsetLeft - 16;
  });

  begin((part) => {
    all("input.range", part).forEach(slide);
    all("dialog[data-open]", part).forEach((d) => { if (!d.open) d.showModal(); });
    if (part.matches("dialog[data-open]") && !part.open) part.showModal();
    off();
  });

  document.addEventListener("input", (e) => {
    const t = e.target;
    if (t.matches("input.range")) slide(t);
    if (t.dataset.color) document.getElementById(t.dataset.color).value = t.value;
    const swatch = t.id && document.querySelector(`[data-color="${CSS.escape(t.id)}"]`);
    if (swatch && /^#[0-9a-f]{6}$/i.test(t.value)) swatch.value = t.value;
    if (t.dataset.filter) {
      const words = t.value.toLowerCase().split(/\s+/);
      for (const tool of all(".tool", document.getElementById(t.dataset.filter))) {
        tool.hidden = !words.every((w) => tool.dataset.name.toLowerCase().includes(w));
      }
    }
  });

  // A slider alone sends when it is released.
  document.addEventListener("change", (e) => {
    const form = e.target.closest("form[data-send]");
    if (form && e.target.matches("input.range")) form.requestSubmit();
  });

  // While a call is under way, its control says so. It moves when the device has answered.
  document.addEventListener("htmx:beforeRequest", (e) => {
    const form = e.target.closest("form[data-call], dialog form");
    if (!form) return;
    const by = e.detail.requestConfig?.triggeringEvent?.submitter || form.querySelector("button:not([type=button])");
    by?.setAttribute("aria-busy", "true");
    form.closest(".tool")?.setAttribute("data-busy", "true");
    form.closest("dialog")?.close();
  });
  document.addEventListener("htmx:afterRequest", (e) => {
    if (e.detail.successful || !e.target.closest) return;
    all("[aria-busy]", e.target).forEach((b) => b.removeAttribute("aria-busy"));
  });
})();
