// The protocol of views, 2026-01-26: JSON-RPC 2.0 with the program that shows this page.
const waiting = new Map(); // answers, by id
let lastID = 0;
let ended = false;
let host = {}; // its abilities
let context = {};

const send = (m) => parent.postMessage(Object.assign({ jsonrpc: "2.0" }, m), "*");

// request returns the answer, or fails with {code, message}. An answer that does not come
// within the time has no code.
function request(method, params, seconds = 900) {
  return new Promise((resolve, reject) => {
    const id = ++lastID;
    const timer = setTimeout(() => {
      waiting.delete(id);
      reject({ message: "No answer came." });
    }, seconds * 1000);
    waiting.set(id, { resolve, reject, timer });
    send({ id, method, params });
  });
}

// on has the functions that a panel sets. Each may be absent.
const on = { input() {}, result() {}, cancelled() {}, context() {}, end() {} };

addEventListener("message", (e) => {
  const m = e.data;
  if (e.source !== parent || !m || m.jsonrpc !== "2.0") return;
  if (m.method === undefined) {
    const w = waiting.get(m.id);
    if (!w) return;
    waiting.delete(m.id);
    clearTimeout(w.timer);
    if (m.error) w.reject({ code: m.error.code, message: String(m.error.message) });
    else w.resolve(m.result || {});
  } else if (m.id !== undefined) {
    answer(m);
  } else {
    notified(m.method, m.params || {});
  }
});

function answer(m) {
  switch (m.method) {
    case "ping":
      return send({ id: m.id, result: {} });
    case "ui/resource-teardown":
      ended = true;
      on.end();
      return send({ id: m.id, result: {} });
  }
  send({ id: m.id, error: { code: -32601, message: "this panel does not know the method" } });
}

function notified(method, params) {
  switch (method) {
    case "ui/notifications/tool-input":
      return on.input(params.arguments || {});
    case "ui/notifications/tool-result":
      return on.result(params);
    case "ui/notifications/tool-cancelled":
      return on.cancelled(String(params.reason || ""));
    case "ui/notifications/host-context-changed":
      Object.assign(context, params);
      look();
      return on.context();
  }
}

// look applies the theme and the variables of the host.
function look() {
  const root = document.documentElement;
  if (context.theme === "light" || context.theme === "dark") root.dataset.theme = context.theme;
  const all = (context.styles && context.styles.variables) || {};
  for (const [name, value] of Object.entries(all)) {
    if (name.startsWith("--") && typeof value === "string") root.style.setProperty(name, value);
  }
  if (all["--font-sans"]) root.style.setProperty("--font", "var(--font-sans)");
  if (all["--font-mono"]) root.style.setProperty("--mono", "var(--font-mono)");
}

// start introduces the panel. Nothing comes before that.
async function start(name) {
  const got = await request("ui/initialize", {
    protocolVersion: "2026-01-26",
    appInfo: { name: "ferrule-" + name, version: "1.0.0" },
    appCapabilities: { availableDisplayModes: ["inline"] },
  });
  host = got.hostCapabilities || {};
  context = got.hostContext || {};
  look();
  send({ method: "ui/notifications/initialized", params: {} });
  new ResizeObserver(sized).observe(document.documentElement);
}

let size = "";
function sized() {
  const box = document.documentElement.getBoundingClientRect();
  const now = { width: Math.ceil(box.width), height: Math.ceil(box.height) };
  if (size === JSON.stringify(now)) return;
  size = JSON.stringify(now);
  send({ method: "ui/notifications/size-changed", params: now });
}

// callTool calls a tool once and returns {word, tone, icon, text, data}. It never repeats.
async function callTool(name, args, seconds) {
  try {
    const r = await request("tools/call", { name, arguments: args }, seconds);
    return outcome(r);
  } catch (e) {
    if (e.code === -32601 || e.code === -32602) return { word: "Not sent", tone: "", icon: "notsent", text: e.message };
    return { word: "May have run", tone: "warn", icon: "maybe", text: e.message + " It is not sent again. Check the device first." };
  }
}

function outcome(r) {
  const text = (r.content || []).filter((c) => c.type === "text").map((c) => c.text).join("\n");
  if (!r.isError) return { word: "Done", tone: "ok", icon: "done", text, data: r.structuredContent, content: r.content || [] };
  const e = (r._meta && r._meta["ferrule/error"]) || {};
  if (e.may_have_run || !e.code) return { word: "May have run", tone: "warn", icon: "maybe", text: text + " It is not sent again." };
  if (e.code === "refused") return { word: "Refused by the device", tone: "bad", icon: "refused", text };
  return { word: "Not sent", tone: "", icon: "notsent", text };
}

// every calls fn again and again while the panel is visible. Fn returns whether it worked;
// after failures it is called less often.
function every(seconds, fn) {
  let failures = 0;
  const next = () => setTimeout(run, Math.min(60, seconds * 2 ** Math.min(failures, 5)) * 1000);
  const run = async () => {
    if (ended) return;
    if (!document.hidden && host.serverTools) failures = (await fn()) ? 0 : failures + 1;
    next();
  };
  next();
}

// Elements. Texts are always texts.
function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  set(e, attributes);
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
  return e;
}

function set(e, attributes) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value === true) e.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) e.setAttribute(name, value);
  }
}

function svg(tag, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(e, attributes);
  e.append(...children);
  return e;
}

const icon = (name, more = "") => svg("svg", { class: "i " + more, "aria-hidden": "true" }, svg("use", { href: "#i-" + name }));
const badge = (tone, name, word) => el("span", { class: "badge " + tone }, icon(name), word);
const panel = document.getElementById("panel");
const show = (...children) => panel.replaceChildren(...children);

// note shows a sentence in place of the panel.
function note(text) {
  show(el("section", { class: "card" }, el("div", { class: "pad t2", role: "status" }, text)));
}

const clip = (text, n) => (text.length > n ? text.slice(0, n - 1) + "…" : text);
const two = (n) => String(n).padStart(2, "0");

function clock(t, seconds = true) {
  const options = { hour: "2-digit", minute: "2-digit", hour12: false };
  if (seconds) options.second = "2-digit";
  if (context.timeZone) options.timeZone = context.timeZone;
  try {
    return new Intl.DateTimeFormat("en-GB", options).format(new Date(t));
  } catch {
    return new Date(t).toISOString().slice(11, seconds ? 19 : 16);
  }
}

const number = (v) => (typeof v === "number" && isFinite(v) ? String(+v.toPrecision(v !== 0 && Math.abs(v) < 1 ? 3 : 5)) : "–");

// duration formats milliseconds: 40 s, 12 min, 2 h 48.
function duration(ms) {
  const s = Math.round(ms / 1000);
  if (s < 60) return s + " s";
  if (s < 3600) return Math.round(s / 60) + " min";
  if (s < 86400) return Math.floor(s / 3600) + " h" + (Math.round((s % 3600) / 60) ? " " + Math.round((s % 3600) / 60) : "");
  return Math.round(s / 86400) + " d";
}

// runs splits points [time, value] at gaps [from, to].
function runs(points, gaps) {
  const all = [];
  let run = [];
  let before = null;
  for (const p of points) {
    if (before !== null && gaps.some((g) => g[0] < p[0] && g[1] > before)) {
      if (run.length) all.push(run);
      run = [];
    }
    run.push(p);
    before = p[0];
  }
  if (run.length) all.push(run);
  return all;
}

const path = (points) => points.map((p, i) => (i ? "L" : "M") + p[0].toFixed(1) + " " + p[1].toFixed(1)).join("");
