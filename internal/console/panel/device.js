// Shows values of a device and calls its tools, by the names that the gateway gives.
const showTool = "gateway__show_device";
let data = null; // the last result
let stale = false;
let controls = ""; // the tools that are drawn
const pieces = {}; // parts of the page that change

on.input = (args) => note("Looking at " + clip(String(args.device || "the device"), 40) + " …");
on.cancelled = (reason) => note("Cancelled. " + reason);
on.result = (r) => {
  const o = outcome(r);
  if (!o.data || !o.data.device) return note(o.text);
  data = o.data;
  page();
};
on.context = () => data && update();

const states = {
  online: ["ok bare", "on", "Online"],
  offline: ["bad", "off", "Offline"],
  released: ["", "pause", "Released"],
};

function page() {
  pieces.state = el("span", {});
  pieces.values = el("div", {});
  pieces.tools = el("div", { class: "tools" });
  pieces.last = el("footer", { role: "status", hidden: true });
  const d = data.device;
  controls = "";
  show(
    el(
      "section",
      { class: "card" },
      el(
        "header",
        {},
        el("span", { class: "tile" }, icon("devices")),
        el("div", { class: "fx" }, el("h2", {}, d.id), el("p", { class: "small muted" }, clip([d.title, d.model, d.version].filter(Boolean).join(" "), 80))),
        pieces.state,
      ),
      pieces.values,
      pieces.tools,
      pieces.last,
    ),
  );
  update();
}

// update draws what changes. Forms stay, because somebody may be typing.
function update() {
  const d = data.device;
  const [tone, name, word] = d.stopped ? ["bad", "stop", "Stopped"] : states[d.state] || ["", "info", d.state];
  pieces.state.replaceChildren(badge(tone, name, word));
  pieces.state.title = [d.reason, d.stopped].filter(Boolean).join("; ");
  values();
  if (data.tools) {
    const now = JSON.stringify(data.tools);
    if (now !== controls) {
      controls = now;
      const reads = data.tools.filter((t) => t.effect === "reads");
      const others = data.tools.filter((t) => t.effect !== "reads");
      pieces.tools.replaceChildren(...others.map(drawn).sort((a, b) => a.order - b.order).map((c) => c.box), readers(reads), more());
    }
  }
  for (const f of pieces.tools.querySelectorAll("[data-run]")) f.disabled = f.dataset.busy === "1" || d.state !== "online" || !host.serverTools;
  for (const f of pieces.tools.querySelectorAll("[data-signal]")) follow(f);
}

// readers folds the tools that only read: the values above show most of it.
function readers(all) {
  if (all.length === 0) return "";
  return el("details", { class: "tool" }, el("summary", {}, icon("right", "s chev"), el("div", {}, el("h3", {}, all.length === 1 ? "1 tool that reads" : all.length + " tools that read"))), ...all.map((t) => drawn(t).box));
}

// drawn returns the control of a tool, and its place: what needs one press comes first.
function drawn(t) {
  const box = tool(t);
  box.dataset.tool = t.tool;
  return { box, order: box.querySelector(".switch") ? 0 : box.querySelector(":scope > .field") ? 1 : 2 };
}

const more = () => (data.more_tools ? el("p", { class: "pad small muted" }, data.more_tools + " more tools are in the console.") : "");

function values() {
  const all = data.values || [];
  if (all.length === 0) {
    pieces.values.replaceChildren(el("p", { class: "pad small muted" }, data.device.reason ? clip(data.device.reason, 200) : "This device has no measured values."));
    return;
  }
  const grid = el("div", { class: "vals" });
  for (const v of all) {
    const old = stale || Date.parse(data.time) - Date.parse(v.time) > 120000;
    grid.append(
      el("div", { class: "val" }, el("span", { title: v.name }, v.name), el("b", { "data-value": v.name }, number(v.value), el("small", {}, " " + (v.unit || ""))), spark(v), old ? el("span", {}, "at " + clock(v.time)) : null),
    );
  }
  grid.classList.toggle("stale", stale);
  pieces.values.replaceChildren(grid);
}

function spark(v) {
  const points = v.curve || [];
  if (points.length < 2) return null;
  const gaps = v.gaps || [];
  const from = points[0][0];
  const to = points[points.length - 1][0];
  let low = Math.min(...points.map((p) => p[1]));
  let high = Math.max(...points.map((p) => p[1]));
  const least = Math.max(Math.abs(high) * 0.03, 1e-9); // noise stays flat
  if (high - low < least) [low, high] = [(low + high - least) / 2, (low + high + least) / 2];
  const x = (t) => ((t - from) / Math.max(1, to - from)) * 120;
  const y = (n) => 25 - ((n - low) / (high - low)) * 22;
  const s = svg("svg", { class: "spark", viewBox: "0 0 120 28", preserveAspectRatio: "none", "aria-hidden": "true" });
  for (const [a, b] of gaps) {
    const left = Math.max(0, x(a));
    const right = Math.min(120, x(b));
    if (right > left) s.append(svg("rect", { class: "gp", x: left.toFixed(1), y: 0, width: (right - left).toFixed(1), height: 28 }));
  }
  for (const run of runs(points, gaps)) {
    const line = run.map((p) => [x(p[0]), y(p[1])]);
    s.append(svg("path", { class: "ar", d: path([[line[0][0], 28], ...line, [line[line.length - 1][0], 28]]) + "Z" }), svg("path", { class: "ln", d: path(line) }));
  }
  return s;
}

// schemaOf returns the arguments of a tool as [name, schema, required].
function schemaOf(t) {
  const s = t.input || {};
  const required = Array.isArray(s.required) ? s.required : [];
  return Object.entries(s.properties || {}).map(([name, p]) => [name, p && typeof p === "object" ? p : {}, required.includes(name)]);
}

const effects = { reads: ["line", "eye", "Reads"], changes: ["line", "change", "Changes"], endangers: ["line bad", "danger", "Endangers"] };
const effect = (t) => badge(...(effects[t.effect] || effects.changes));
const named = (t) => clip(t.title || t.tool, 60);

// signalOf returns the value that shows the state that a tool sets, or nothing.
function signalOf(t, argument) {
  const names = [argument, t.tool.replace(/^(set|write|turn)_/, ""), t.tool.replace(/_(set|write)$/, "")];
  return (data.values || []).find((v) => names.includes(v.name));
}

// tool returns the control of a tool: a switch, a slider, a button, or a form.
function tool(t) {
  const args = schemaOf(t);
  const only = args.length === 1 && t.effect !== "endangers" ? args[0] : null;
  if (only && only[1].type === "boolean" && signalOf(t, only[0])) return switchRow(t, only[0]);
  if (only && slides(only[1])) return sliderRow(t, only[0], only[1]);
  if (args.length === 0) {
    const run = el("button", { class: "btn sm", type: "button", "data-run": "1" }, t.effect === "reads" ? "Read" : "Run");
    const box = el("div", { class: "tool" });
    box.append(el("div", { class: "sum" }, about(t), effect(t), run), confirmed(box, t, run, () => ({})));
    return box;
  }
  return form(t, args);
}

const about = (t) => el("div", {}, el("h3", {}, named(t)), t.text ? el("p", {}, clip(t.text, 160)) : null);
const slides = (s) => (s.type === "number" || s.type === "integer") && isFinite(s.minimum) && isFinite(s.maximum) && (s.maximum - s.minimum) / stepOf(s) <= 1000;
const stepOf = (s) => (s.multipleOf > 0 ? s.multipleOf : s.type === "integer" ? 1 : (s.maximum - s.minimum) / 100 || 1);

// switchRow shows what the device last reported. It does not move before the device has
// answered.
function switchRow(t, argument) {
  const input = el("input", { type: "checkbox", role: "switch", class: "switch", "data-run": "1", "data-signal": signalOf(t, argument).name, "aria-label": named(t) });
  input.addEventListener("click", (e) => {
    e.preventDefault();
    if (input.dataset.busy !== "1") run(t, { [argument]: input.checked }, input); // what it would become
  });
  return el("div", { class: "tool" }, el("div", { class: "sum row-sw" }, about(t), input));
}

// follow sets a control to the last value of its signal.
function follow(f) {
  const v = (data.values || []).find((one) => one.name === f.dataset.signal);
  if (!v) return;
  if (f.type === "checkbox") f.checked = v.value !== 0;
  const now = f.closest(".tool").querySelector("[data-now]");
  if (now) now.textContent = "now " + number(v.value) + (v.unit ? " " + v.unit : "");
}

// sliderRow sends when the slider is released.
function sliderRow(t, argument, s) {
  const v = signalOf(t, argument);
  const at = v && v.value >= s.minimum && v.value <= s.maximum ? v.value : isFinite(s.default) ? s.default : s.minimum;
  const out = el("output", {}, v ? number(at) : "not set yet");
  const input = el("input", { class: "range", type: "range", min: s.minimum, max: s.maximum, step: stepOf(s), "data-run": "1", "data-signal": v ? v.name : null, "aria-label": named(t) });
  input.value = at;
  const fill = () => input.style.setProperty("--at", ((input.value - s.minimum) / (s.maximum - s.minimum)) * 100 + "%");
  input.addEventListener("input", () => {
    out.textContent = input.value;
    fill();
  });
  input.addEventListener("change", () => run(t, { [argument]: Number(input.value) }, input));
  fill();
  const ends = el("div", { class: "ends" }, el("span", {}, number(s.minimum)), el("span", { "data-now": true }), el("span", {}, number(s.maximum)));
  return el("div", { class: "tool" }, el("div", { class: "pad field" }, el("label", {}, named(t), out), input, ends));
}

// form returns the fields of a tool, and a button.
function form(t, args) {
  const fields = args.map(([name, s, required]) => field(name, s, required));
  const send = el("button", { class: t.effect === "endangers" ? "btn danger" : "btn primary", "data-run": "1" }, t.effect === "reads" ? "Read" : "Run");
  const f = el("form", { novalidate: true }, ...fields.map((one) => one.box), el("div", { class: "run" }, send));
  const read = () => {
    const given = {};
    let wrong = false;
    for (const one of fields) wrong = !one.read(given) || wrong;
    return wrong ? null : given;
  };
  f.append(confirmed(f, t, send, read));
  f.addEventListener("submit", (e) => e.preventDefault());
  return el("details", { class: "tool" }, el("summary", {}, icon("right", "s chev"), about(t), effect(t)), f);
}

// confirmed makes a button call a tool. What endangers is confirmed first, in the panel:
// frames cannot open dialogs.
function confirmed(box, t, button, read) {
  const place = el("div", { hidden: true });
  button.addEventListener("click", () => {
    const args = read();
    if (!args) return;
    if (t.effect !== "endangers") return run(t, args, button);
    const cancel = el("button", { class: "btn sm", type: "button", onclick: () => (place.hidden = true) }, "Cancel");
    const go = el("button", { class: "btn sm danger fill", type: "button" }, named(t));
    go.addEventListener("click", () => {
      place.hidden = true;
      run(t, args, button);
    });
    place.replaceChildren(el("div", { class: "note pad" }, el("div", {}, el("b", {}, named(t) + " on " + data.device.id + "?"), el("pre", {}, JSON.stringify(args))), cancel, go));
    place.hidden = false;
    cancel.focus();
  });
  return place;
}

let fieldID = 0;

// field returns {box, read}. Read adds the value to the arguments, or shows what is wrong.
function field(name, s, required) {
  const id = "f" + ++fieldID;
  const wrong = el("p", { class: "err", hidden: true, role: "alert" });
  const label = el("label", { for: id }, s.title || name, required ? "" : el("span", { class: "small muted" }, "optional"));
  const hint = s.description ? el("p", { class: "hint", id: id + "h" }, clip(String(s.description), 160)) : null;
  const input = inputOf(s, required);
  set(input, { id, name, "aria-describedby": hint ? id + "h" : null });
  const box = el("div", { class: "field" }, label, input, hint, wrong);
  if (input.type === "range") {
    const out = el("output", {}, input.value);
    label.append(out);
    input.addEventListener("input", () => (out.textContent = input.value));
  }
  const read = (args) => {
    const [value, problem] = valueOf(input, s, required);
    wrong.hidden = !problem;
    wrong.textContent = problem ? (s.title || name) + " " + problem : "";
    input.setAttribute("aria-invalid", String(!!problem));
    if (value !== undefined) args[name] = value;
    return !problem;
  };
  return { box, read };
}

function inputOf(s, required) {
  if (Array.isArray(s.enum)) {
    const options = s.enum.map((v) => el("option", { value: JSON.stringify(v) }, String(v)));
    return el("select", { class: "in" }, ...(required ? [] : [el("option", { value: "" }, "–")]), ...options);
  }
  switch (s.type) {
    case "boolean":
      return el("select", { class: "in" }, ...(required ? [] : [el("option", { value: "" }, "–")]), el("option", { value: "true" }, "On"), el("option", { value: "false" }, "Off"));
    case "number":
    case "integer": {
      const n = el("input", { class: slides(s) && required ? "range" : "in", type: slides(s) && required ? "range" : "number", min: s.minimum, max: s.maximum, step: s.type === "integer" ? 1 : "any" });
      if (isFinite(s.default)) n.value = s.default;
      else if (slides(s)) n.value = required ? s.minimum : "";
      return n;
    }
    case "string":
      if (s.format === "color") return el("input", { class: "in", type: "color" });
      return el("input", { class: "in", type: "text", maxlength: s.maxLength, value: typeof s.default === "string" ? s.default : "" });
  }
  return el("textarea", { class: "in", rows: 3, placeholder: "JSON" });
}

// valueOf returns the value of an input, or why it is wrong. The gateway checks it again.
function valueOf(input, s, required) {
  const text = input.value;
  if (text === "" && (s.type !== "string" || !required)) return required ? [undefined, "is missing."] : [undefined, ""];
  if (Array.isArray(s.enum)) return [JSON.parse(text), ""];
  switch (s.type) {
    case "boolean":
      return [text === "true", ""];
    case "number":
    case "integer": {
      const n = Number(text);
      if (!isFinite(n) || (s.type === "integer" && !Number.isInteger(n))) return [undefined, "must be " + (s.type === "integer" ? "a whole number" : "a number") + ", got " + text + "."];
      if (n < s.minimum) return [undefined, "must be at least " + s.minimum + ", got " + text + "."];
      if (n > s.maximum) return [undefined, "must be at most " + s.maximum + ", got " + text + "."];
      return [n, ""];
    }
    case "string":
      return [text, ""];
  }
  try {
    return [JSON.parse(text), ""];
  } catch {
    return [undefined, "must be JSON."];
  }
}

// run makes one call. The control is disabled until the answer is there.
async function run(t, args, control) {
  control.dataset.busy = "1";
  control.disabled = true;
  control.setAttribute("aria-busy", "true");
  const given = Object.assign({}, t.arguments);
  if (t.into) given[t.into] = args;
  else Object.assign(given, args);
  const o = await callTool(t.name, given);
  control.dataset.busy = "";
  control.removeAttribute("aria-busy");
  const at = clock(Date.now());
  pieces.last.hidden = false;
  pieces.last.classList.toggle("warn", o.tone === "warn");
  pieces.last.replaceChildren(badge("bare " + o.tone, o.icon, o.word), el("span", {}, named(t) + (o.text ? ": " + clip(o.text, 300) : "")), el("span", { class: "push" }, at));
  const picture = (o.content || []).find((c) => c.type === "image" && /^image\/(png|jpeg|webp|gif)$/.test(c.mimeType) && c.data.length < 4e6);
  if (picture) pieces.last.append(el("img", { src: `data:${picture.mimeType};base64,${picture.data}`, alt: named(t), width: "100%" }));
  await refresh();
  update();
}

// refresh asks for state and values.
async function refresh() {
  const o = await callTool(showTool, { device: data.device.id, brief: true }, 30);
  stale = !(o.data && o.data.device);
  if (!stale) {
    for (const v of o.data.values) {
      const before = data.values.find((one) => one.name === v.name);
      if (!before || !before.curve) continue;
      v.gaps = before.gaps;
      v.curve = before.curve;
      const t = Date.parse(v.time);
      if (t > v.curve[v.curve.length - 1][0]) v.curve = v.curve.concat([[t, v.value]]).filter((p) => p[0] > t - 3600000);
    }
    data = Object.assign({}, data, { device: o.data.device, time: o.data.time, values: o.data.values });
  }
  return !stale;
}

every(2, async () => {
  if (!data) return true;
  const worked = await refresh();
  update();
  return worked;
});
start("device");
