// Draws what a device measured. Buttons ask for another time range with the same tool.
const historyTool = "gateway__history";
const ranges = ["1h", "6h", "24h", "7d"];
let asked = {};
let range = "";
let drawn = null;
let busy = false;

on.input = (args) => {
  asked = args;
  range = typeof args.since === "string" ? args.since : "1h";
  note("Reading measured values …");
};
on.cancelled = (reason) => note("Cancelled. " + reason);
on.context = () => drawn && draw();
on.result = (r) => {
  const o = outcome(r);
  if (!o.data) return note(o.text);
  drawn = o.data;
  draw();
};

function draw(problem) {
  const d = drawn;
  const pick = el("div", { class: "seg push", role: "group", "aria-label": "Time range" });
  for (const name of ranges) {
    pick.append(el("button", { type: "button", "aria-pressed": String(name === range), disabled: busy || !host.serverTools, onclick: () => ask(name) }, name));
  }
  const body = el("div", { class: "pad" });
  const all = d.signals || [];
  if (all.length === 0) body.append(el("p", { class: "muted" }, "No values in this time range."));
  for (const s of all) body.append(...curve(s, Date.parse(d.from), Date.parse(d.to), all.length));
  const title = all.length === 1 ? all[0].name : d.device;
  show(
    el(
      "section",
      { class: "card" },
      el("header", {}, el("h2", {}, title), el("span", { class: "t2 muted" }, all.length === 1 ? [d.device, all[0].unit].filter(Boolean).join(", ") : all.length + " signals"), pick),
      body,
      problem ? el("footer", { role: "status" }, problem) : null,
    ),
  );
}

async function ask(name) {
  if (busy) return;
  busy = true;
  draw();
  const args = { device: drawn.device, since: name, points: 200 };
  if (Array.isArray(asked.signals)) args.signals = asked.signals;
  else if (drawn.signals.length) args.signals = drawn.signals.map((s) => s.name);
  const o = await callTool(historyTool, args, 60);
  busy = false;
  if (o.data) {
    drawn = o.data;
    range = name;
  }
  draw(o.data ? "" : o.text);
}

const box = { left: 44, right: 352, top: 18, bottom: 140 };
let patterns = 0;

// curve returns the heading and the drawing of one signal.
function curve(s, from, to, count) {
  const points = (s.points || []).map((p) => [Date.parse(p.time), p.value, p.min === undefined ? p.value : p.min, p.max === undefined ? p.value : p.max]);
  const gaps = (s.gaps || []).map((g) => [Math.max(from, Date.parse(g.from)), Math.min(to, Date.parse(g.to))]).filter((g) => g[1] > g[0]);
  const heading = count > 1 ? [el("h3", {}, s.name + (s.unit ? ", " + s.unit : ""))] : [];
  if (points.length === 0) return [...heading, el("p", { class: "muted" }, "No values in this time range.")];
  let low = Math.min(...points.map((p) => p[2]));
  let high = Math.max(...points.map((p) => p[3]));
  const least = Math.max(Math.abs(high) * 0.03, 1e-9); // noise stays flat
  if (high - low < least) [low, high] = [(low + high - least) / 2, (low + high + least) / 2];
  const x = (t) => box.left + ((t - from) / Math.max(1, to - from)) * (box.right - box.left);
  const y = (v) => box.bottom - ((v - low) / (high - low)) * (box.bottom - box.top);
  const last = s.last ? [Date.parse(s.last.time), s.last.value] : points[points.length - 1];
  const missing = gaps.reduce((sum, g) => sum + g[1] - g[0], 0);
  const about = `${s.name} from ${clock(from, false)} to ${clock(to, false)}, last ${number(last[1])} ${s.unit || ""}.` + (missing ? ` No data for ${duration(missing)}.` : "");
  const id = "h" + ++patterns;
  const g = svg("svg", { class: "chart", viewBox: "0 0 420 190", role: "img", "aria-label": about });
  g.append(svg("defs", {}, svg("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("path", { class: "hatch", d: "M0 0v6" }))));
  for (const v of ticks(low, high)) {
    g.append(svg("path", { class: "gl", d: `M${box.left} ${y(v).toFixed(1)}H${box.right}` }), label(box.left - 8, y(v) + 4, number(v), "end"));
  }
  const long = to - from > 86400000 * 1.5;
  const when = (t) => (long ? new Date(t).toISOString().slice(5, 10) : clock(t, to - from < 600000));
  g.append(label(box.left, 182, when(from), "start"), label((box.left + box.right) / 2, 182, when((from + to) / 2), "middle"), label(box.right, 182, when(to), "end"));
  for (const [a, b] of gaps) {
    const at = { x: x(a).toFixed(1), y: box.top, width: Math.max(1, x(b) - x(a)).toFixed(1), height: box.bottom - box.top };
    g.append(svg("rect", Object.assign({ class: "gp" }, at)), svg("rect", Object.assign({ fill: `url(#${id})` }, at)));
  }
  g.append(svg("path", { class: "ax", d: `M${box.left} ${box.bottom}H${box.right}` }));
  for (const run of runs(points, gaps)) {
    const band = run.map((p) => [x(p[0]), y(p[3])]).concat(run.map((p) => [x(p[0]), y(p[2])]).reverse());
    const line = (s.state ? steps(run) : run).map((p) => [x(p[0]), y(p[1])]);
    g.append(svg("path", { class: "ar", d: path(band) + "Z" }), svg("path", { class: "ln", d: path(line) }));
    if (run.length === 1) g.append(svg("circle", { class: "pt", cx: x(run[0][0]).toFixed(1), cy: y(run[0][1]).toFixed(1), r: 2 }));
  }
  const top = points.reduce((a, b) => (b[3] > a[3] ? b : a));
  g.append(svg("circle", { class: "pt", cx: x(top[0]).toFixed(1), cy: y(top[3]).toFixed(1), r: 3 }), label(Math.min(Math.max(x(top[0]), 70), 330), y(top[3]) - 8, "max " + number(top[3]), "middle", "lb halo"));
  const at = [Math.min(x(last[0]), box.right), Math.min(Math.max(y(last[1]), box.top), box.bottom)];
  g.append(svg("circle", { class: "last", cx: at[0].toFixed(1), cy: at[1].toFixed(1), r: 4.5 }), label(362, at[1] + 1, number(last[1]), "start", "lb"), label(362, at[1] + 15, clip((s.unit || "") + " last", 12), "start"));
  for (const [a, b] of gaps) {
    const middle = (x(a) + x(b)) / 2;
    if (x(b) - x(a) < 14) continue;
    const text = duration(b - a);
    g.append(svg("rect", { class: "gpl", x: (middle - text.length * 3.2).toFixed(1), y: 61, width: (text.length * 6.4).toFixed(1), height: 18, rx: 4 }), label(middle, 75, text, "middle", "gt"));
  }
  return [...heading, g];
}

const label = (x, y, text, anchor, kind = "") => svg("text", { x: x.toFixed(1), y: y.toFixed(1), "text-anchor": anchor, class: kind }, text);

// steps holds each value until the next.
function steps(run) {
  const all = [];
  run.forEach((p, i) => {
    if (i) all.push([p[0], run[i - 1][1]]);
    all.push(p);
  });
  return all;
}

// ticks returns two to five round numbers in a range.
function ticks(low, high) {
  const raw = (high - low) / 3;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw) || raw;
  const all = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6 && all.length < 6; v += step) all.push(+v.toPrecision(12));
  return all;
}

start("history");
