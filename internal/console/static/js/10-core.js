// What every page needs: theme, keys, dialogs, notes, and live updates. Other files of this
// folder add what single pages need; all of them use window.ferrule.
"use strict";
window.ferrule = (() => {
  const root = document.documentElement;
  root.classList.add("js");
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);

  // Storage can be blocked.
  const stored = (key) => { try { return localStorage.getItem(key); } catch { return null; } };
  const store = (key, value) => { try { localStorage.setItem(key, value); } catch { /* as before */ } };

  const saved = stored("theme");
  if (saved) root.dataset.theme = saved;
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);

  // note returns an element with an icon and a text. It uses textContent: a device may have
  // written it.
  function note(className, text, icon, tone) {
    const box = document.createElement("div");
    box.className = className;
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("class", "i " + tone);
    svg.setAttribute("aria-hidden", "true");
    const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
    use.setAttribute("href", "#i-" + icon);
    svg.append(use);
    const words = document.createElement("div");
    words.textContent = text;
    box.append(svg, words);
    return box;
  }

  // toast shows a note for five seconds.
  function toast(text, icon = "done", tone = "ok") {
    const box = note("toast", text, icon, tone);
    document.querySelector(".toasts").append(box);
    setTimeout(() => box.remove(), 5000);
  }

  // begin calls a function with each part of the page that is new: first with the whole page,
  // then with what htmx or a live update has put in.
  const beginners = [];
  function begin(fn) {
    beginners.push(fn);
    if (document.readyState !== "loading") fn(document.body);
  }
  const began = (part) => beginners.forEach((fn) => fn(part));
  document.addEventListener("DOMContentLoaded", () => began(document.body));
  document.addEventListener("htmx:load", (e) => { if (e.target !== document.body) began(e.target); });

  // elements returns the elements of an update.
  function elements(html) {
    const parts = document.createElement("template");
    parts.innerHTML = html; // drawn by the gateway, which escapes what devices say
    return [...parts.content.children];
  }

  // replace puts an element of an update in the place of the one with the same id. It waits
  // while a person is using that one.
  const late = new Map(); // by id
  function replace(next) {
    const now = next.id && byId(next.id);
    if (!now || "done" in now.dataset) return;
    if (busy(now)) {
      late.set(next.id, next);
      return;
    }
    late.delete(next.id);
    const current = now.getAttribute("aria-current");
    if (current) next.setAttribute("aria-current", current);
    for (const d of all("details[id]", now)) {
      const same = next.querySelector("#" + CSS.escape(d.id));
      if (same) same.open = d.open;
    }
    if (now.isEqualNode(next)) return;
    const focus = focusIn(now);
    now.replaceWith(next);
    put(next);
    focus?.(next);
  }
  function put(next) {
    moved();
    window.htmx?.process(next);
    if (root.classList.contains("lost")) disable(next, "lost", true);
    began(next);
    stopped();
  }
  setInterval(() => late.forEach(replace), 500);

  const busy = (part) => part.contains(document.activeElement) && document.activeElement.matches("input:not([type=checkbox], [type=radio]), select, textarea")
    || part.querySelector("dialog[open]") !== null || part.matches(":active") || part.dataset.busy === "true";

  // focusIn returns a function that puts the focus on the same control of a new element. If
  // that has no such control, the focus is on the element: never on another control.
  const focusable = "a, button, input, select, textarea, summary, [tabindex]";
  const means = (e) => [e.localName, e.getAttribute("href"), e.getAttribute("name"), e.getAttribute("value")].join(" ");
  function focusIn(part) {
    const focused = document.activeElement;
    if (!part.contains(focused)) return null;
    const place = all(focusable, part).indexOf(focused);
    return (next) => {
      const same = focused.id ? byId(focused.id) : focused === part ? next : all(focusable, next)[place];
      focus(same && means(same) === means(focused) ? same : next);
    };
  }
  function focus(e) {
    if (e.tabIndex < 0) e.tabIndex = -1;
    e.focus({ preventScroll: true });
  }

  // A decision must not be made by a press that was meant for something else. If a form with
  // [data-decide] has just come to another place, by an update or an answer, a press on it is
  // dropped. So is the second press of a double click on what acts.
  const places = new Map(); // of what decides, by the id around it: { at, since }
  const settled = 700; // milliseconds
  function moved() {
    for (const form of all("[data-decide]")) {
      const id = form.closest("[id]").id, box = form.getBoundingClientRect();
      const at = Math.round(box.left + scrollX) + " " + Math.round(box.bottom + scrollY), before = places.get(id);
      if (before?.at === at) continue;
      const back = before?.was?.at === at && Date.now() - before.since < settled; // it was elsewhere for a moment
      places.set(id, back ? before.was : { at, since: before ? Date.now() : 0, was: before && { at: before.at, since: before.since } });
    }
  }
  document.addEventListener("click", (e) => {
    const form = e.target.closest?.("button, [data-switch]")?.closest("[data-decide], form[data-call], dialog form, [data-switch]");
    if (!form || e.detail === 0) return; // a key
    moved();
    const late = form.matches("[data-decide]") && Date.now() - places.get(form.closest("[id]").id).since < settled;
    if (!late && e.detail < 2) return;
    e.preventDefault();
    e.stopImmediatePropagation();
    if (late) toast("The page has just moved. Nothing was decided. Look, then press again.", "info", "info");
  }, true);
  document.addEventListener("htmx:afterSwap", moved);
  document.addEventListener("DOMContentLoaded", () => new ResizeObserver(moved).observe(document.body));

  // done ends what people decide on. It keeps its place and its height: the next one must not
  // move under a finger.
  function done(one, words) {
    words.remove();
    const height = one.offsetHeight, form = one.querySelector("form");
    const had = form?.contains(document.activeElement);
    one.dataset.done = "";
    one.append(words);
    form?.remove();
    one.style.minHeight = height + "px";
    if (had) focus(one);
  }
  begin((part) => (part.matches("[data-answer]") ? [part] : all("[data-answer]", part)).forEach((words) => done(words.closest("[data-gone]"), words)));

  // list brings a list up to date. What is gone is removed, or stays and says so if it has
  // data-gone. A list with data-still is never sorted again.
  function list({ id, order, html }) {
    const box = byId(id);
    if (!box) return;
    for (const next of elements(html)) {
      if (byId(next.id)) replace(next);
      else {
        box.append(next);
        put(next);
      }
    }
    for (const one of [...box.children]) {
      if (!one.id || order.includes(one.id) || "done" in one.dataset) continue;
      if (one.dataset.gone) {
        const words = note("out", one.dataset.gone, "info", "info");
        words.setAttribute("role", "status");
        done(one, words);
        continue;
      }
      if (one.contains(document.activeElement)) focus(box);
      one.remove();
    }
    const sorted = order.map(byId).filter((one) => one && one.parentElement === box);
    if (!("still" in box.dataset)) sorted.forEach((one, i) => { if (box.children[i] !== one) box.insertBefore(one, box.children[i]); });
    moved();
    box.dispatchEvent(new CustomEvent("listed", { bubbles: true, detail: order.length }));
  }

  // Live updates. The stream is closed while the page is hidden: browsers keep only six
  // connections to a gateway without HTTP/2.
  let source = null, tries = 0;
  function connect() {
    const url = document.body.dataset.live;
    if (!url || source || document.hidden) return;
    source = new EventSource(url);
    source.addEventListener("hello", () => { tries = 0; root.dataset.stream = "open"; online(true); without(""); });
    source.addEventListener("elements", (e) => elements(JSON.parse(e.data)).forEach(replace));
    source.addEventListener("list", (e) => list(JSON.parse(e.data)));
    source.addEventListener("logout", () => { disconnect(); location.reload(); });
    source.onerror = () => {
      delete root.dataset.stream;
      if (source.readyState === EventSource.CLOSED) retry();
      else online(false); // the browser retries
    };
    for (const name of names) listen(name);
  }
  function disconnect() { source?.close(); source = null; }
  // follow changes where live updates come from, after a part of the page was replaced.
  function follow(url) {
    if (document.body.dataset.live === url) return;
    document.body.dataset.live = url;
    if (source) { disconnect(); connect(); }
  }
  // retry connects again after the gateway has refused: it may have restarted without the
  // session, or has too many open pages. The page can be used without live updates.
  function retry() {
    disconnect();
    tries += 1;
    setTimeout(async () => {
      const ask = new AbortController(), answer = await fetch(document.body.dataset.live, { signal: ask.signal }).catch(() => null);
      ask.abort();
      switch (answer?.status) {
        case 200: return connect();
        case 401: return location.reload();
        case 404: return without("What this page shows is gone, or you may not see it any longer.");
        case 503: without("Too many pages are open, so this one does not change by itself. Close some of them, or load it again to see what is new."); break;
        default: online(false);
      }
      retry();
    }, Math.min(1000 * tries, 10000));
  }
  // without shows why there are no live updates.
  function without(why) {
    root.classList.toggle("still", why !== "");
    if (why) online(true);
    const words = document.querySelector("#live span");
    if (words) words.textContent = why ? "Not live" : "Live";
    byId("lostslot")?.replaceChildren(...(why ? [note("lostbar", why, "info", "warn")] : []));
  }
  const names = new Set();
  const listen = (name) => source.addEventListener(name, (e) => document.dispatchEvent(new CustomEvent("live:" + name, { detail: JSON.parse(e.data) })));
  // on calls a function with the value of each live event with a name.
  function on(name, fn) {
    document.addEventListener("live:" + name, (e) => fn(e.detail));
    if (!names.has(name)) {
      names.add(name);
      if (source) listen(name);
    }
  }

  // disable disables controls for a reason, or enables those that were disabled for it.
  const controls = "button, input, select, textarea";
  function disable(within, why, is, selector = controls) {
    const found = all(selector, within).flatMap((e) => (e.matches(controls) ? [e] : all(controls, e)));
    for (const e of found) {
      const reasons = new Set((e.dataset.off || "").split(" ").filter(Boolean));
      if (is && e.disabled && reasons.size === 0) continue; // for a reason of the page
      if (is) reasons.add(why);
      else if (!reasons.delete(why)) continue;
      e.disabled = reasons.size > 0;
      if (e.disabled) e.dataset.off = [...reasons].join(" ");
      else delete e.dataset.off;
    }
  }

  // online shows whether the gateway answers. Values keep their time while it does not.
  function online(is) {
    if (is !== root.classList.contains("lost")) return;
    root.classList.toggle("lost", !is);
    const words = document.querySelector("#live span");
    if (words) words.textContent = is ? "Live" : "Gateway lost";
    const text = "Gateway lost. Values are from " + new Date().toTimeString().slice(0, 8) + ". Trying again.";
    byId("lostslot")?.replaceChildren(...(is ? [] : [note("lostbar", text, "off", "warn")]));
    disable(document.querySelector("main"), "lost", !is);
    moved();
  }
  // stopped disables what moves devices while everything is stopped: what has data-acts, and
  // what is inside it.
  function stopped() {
    const is = byId("stopslot")?.dataset.stopped === "true";
    root.classList.toggle("stopped", is);
    disable(document, "stopped", is, "[data-acts]");
  }
  document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
  window.addEventListener("pagehide", disconnect);
  window.addEventListener("pageshow", connect);
  document.addEventListener("DOMContentLoaded", () => { stopped(); connect(); });

  const csrf = () => document.querySelector('meta[name="csrf"]').content;
  document.addEventListener("htmx:configRequest", (e) => { e.detail.headers["X-CSRF-Token"] = csrf(); });
  // An answer with an error is a part of the page too: it says what happened.
  document.addEventListener("htmx:beforeSwap", (e) => {
    if (e.detail.xhr.status >= 400 && e.detail.xhr.getResponseHeader("Content-Type")?.startsWith("text/html")) e.detail.shouldSwap = true;
  });
  document.addEventListener("htmx:sendError", () => toast("The gateway does not answer. Check before you try again.", "notsent", "bad"));

  // Stop is one press. It stays on the page, so that nothing that was typed is lost.
  document.addEventListener("submit", async (e) => {
    const form = e.target.closest("[data-stop]");
    if (!form) return;
    e.preventDefault();
    const button = form.querySelector("button");
    button.lastChild.data = "Stopping";
    const answer = await fetch(form.action, { method: "POST", headers: { "X-CSRF-Token": csrf(), "HX-Request": "true" } }).catch(() => null);
    if (!answer?.ok) {
      button.lastChild.data = "Stop";
      byId("lostslot").replaceChildren(note("lostbar", "Stop is not confirmed. Press it again, or run ferrule stop on the machine of the gateway.", "danger", "bad"));
    } else if (!source) location.reload();
  });

  document.addEventListener("click", (e) => {
    const b = e.target.closest("button, a");
    if (!b) return;
    if (b.matches("[data-theme-toggle]")) {
      root.dataset.theme = dark() ? "light" : "dark";
      store("theme", root.dataset.theme);
      document.dispatchEvent(new CustomEvent("theme"));
    }
    const dialog = b.dataset.dialog && byId(b.dataset.dialog);
    if (dialog) {
      e.preventDefault(); // a link is for pages without scripts
      dialog.showModal();
    }
    if (b.matches("[data-close]")) b.closest("dialog")?.close();
    if (b.dataset.copy) {
      navigator.clipboard?.writeText(byId(b.dataset.copy).textContent).then(() => toast("Copied"), () => {});
    }
  });

  // Keys. Nothing is approved by a single key. Items of lists are moved through by their
  // first link, or as a whole.
  const pages = { d: "/devices", a: "/approvals", c: "/activity", g: "/agents", r: "/rules", s: "/system" };
  const items = "main .list > li, main tbody tr, main .dev, main .appr, main [data-item]";
  function move(by) {
    const list = all(items).filter((one) => one.checkVisibility?.() ?? true);
    const at = list.findIndex((one) => one.contains(document.activeElement));
    const next = list[at < 0 ? (by > 0 ? 0 : list.length - 1) : Math.min(Math.max(at + by, 0), list.length - 1)];
    if (!next) return;
    const target = next.matches(".appr") ? next : next.querySelector("a[href], summary, button:not([disabled])") || next;
    if (target === next) next.tabIndex = -1;
    target.focus();
    next.scrollIntoView({ block: "nearest" });
  }
  let g = 0;
  document.addEventListener("keydown", (e) => {
    if (e.key === "." && (e.ctrlKey || e.metaKey)) {
      e.preventDefault();
      document.querySelector("[data-stop] button")?.click();
      return;
    }
    const typing = e.target.matches("input:not([type=checkbox], [type=radio], [type=range]), select, textarea");
    if (e.key === "Escape" && typing && !e.target.closest("dialog")) e.target.blur();
    if (typing || e.ctrlKey || e.metaKey || e.altKey || stored("keys") === "off" || document.querySelector("dialog[open]")) return;
    if (Date.now() - g < 800 && pages[e.key]) location.href = pages[e.key];
    else if (e.key === "g") g = Date.now();
    else if (e.key === "/") { e.preventDefault(); byId("q")?.focus(); }
    else if (e.key === "?") byId("keys")?.showModal();
    else if (e.key === "j") move(1);
    else if (e.key === "k") move(-1);
  });
  begin((part) => all("[data-letters]", part).forEach((box) => {
    box.checked = stored("keys") !== "off";
    box.addEventListener("change", () => store("keys", box.checked ? "on" : "off"));
  }));

  // Countdowns: data-left is the number of seconds, of data-of. The arc beside it shrinks.
  const ends = new WeakMap();
  begin((part) => all("[data-left]", part).forEach((n) => ends.set(n, Date.now() + Number(n.dataset.left) * 1000)));
  setInterval(() => all("[data-left]").forEach((n) => {
    const left = Math.max(0, Math.round((ends.get(n) - Date.now()) / 1000));
    n.textContent = Math.floor(left / 60) + ":" + String(left % 60).padStart(2, "0");
    n.closest(".ring")?.querySelector(".arc").setAttribute("stroke-dasharray", (157.1 * left / Number(n.dataset.of || left || 1)).toFixed(1) + " 157.1");
  }), 1000);

  return { all, begin, follow, on, toast, stored, store, dark };
})();
