// Curves that move: [data-chart] has a picture and what a script needs to draw it. New
// samples come as the live event "samples"; old ones leave the curve.
"use strict";
(() => {
  const { all, begin, on } = window.ferrule;
  const charts = new Set();
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // light-dark() is resolved only in a property that takes colors.
  function resolve(names) {
    const probe = document.createElement("span");
    probe.hidden = true;
    document.body.append(probe);
    const found = {};
    for (const name of names) {
      probe.style.color = "var(--" + name + ")";
      found[name] = getComputedStyle(probe).color;
    }
    probe.remove();
    return found;
  }
  const colors = () => resolve(["c1", "c2", "c3", "line", "line2", "muted", "text", "surface", "warn", "control"]);

  // number is draw.Number of the gateway.
  function number(v) {
    const size = Math.abs(v);
    if (!Number.isFinite(v)) return "–";
    if (size !== 0 && (size >= 1e9 || size < 1e-3)) return String(Number(v.toPrecision(4)).toExponential()).replace("e+", "e").replaceAll("-", "−");
    const decimals = size > 0 ? Math.min(4, Math.max(0, 3 - Math.floor(Math.log10(size)))) : 0;
    return String(Number(v.toFixed(decimals))).replaceAll("-", "−");
  }
  const withUnit = (v, unit) => number(v) + (unit ? (/^[°′″]$/.test(unit) ? "" : " ") + unit : "");
  const length = (ms) => {
    const s = ms / 1000;
    if (s < 120) return Math.round(s) + " s";
    if (s < 3600) return Math.floor(s / 60) + " min";
    if (s < 86400) return Math.floor(s / 3600) + " h" + (Math.floor(s / 60) % 60 ? " " + (Math.floor(s / 60) % 60) + " min" : "");
    return Math.floor(s / 86400) + " d";
  };
  const pad = (n) => String(n).padStart(2, "0");
  const clock = (t, seconds) => { const d = new Date(t); return pad(d.getHours()) + ":" + pad(d.getMinutes()) + (seconds ? ":" + pad(d.getSeconds()) : ""); };

  class Curve {
    constructor(host) {
      const data = JSON.parse(host.dataset.chart);
      this.host = host;
      host.curve = this;
      this.card = host.closest(".chartcard") ?? host;
      this.device = data.device;
      this.unit = data.unit;
      this.length = data.length;
      this.step = data.step;
      this.ahead = data.to - Date.now(); // of the gateway's clock; less by the time that the page took to load
      this.calls = data.calls;
      this.gaps = data.gaps;
      this.series = data.series.map((s) => this.columns(s));
      this.zoomed = false;
      this.dirty = true;
      this.loaded = Date.now();
      this.palette = colors();
      this.host.classList.add("drawn");
      this.host.setAttribute("role", "img");
      this.host.setAttribute("aria-label", host.querySelector("svg")?.getAttribute("aria-label") ?? "Chart");
      this.draw();
      const reset = this.card.querySelector("[data-reset]");
      if (reset) reset.onclick = () => this.reset();
      this.observer = new ResizeObserver(() => this.resize());
      this.observer.observe(host);
    }

    columns(s) {
      let t = 0;
      const times = s.t.map((d) => (t += d));
      return { name: s.name, title: s.title, state: s.state, t: times, v: s.v, lo: s.lo ?? s.v.slice(), hi: s.hi ?? s.v.slice(), n: s.v.map(() => 1) };
    }

    now() { return Date.now() + this.ahead; }

    // add puts samples into columns as wide as those of the gateway.
    add(name, samples, gaps) {
      const s = this.series.find((one) => one.name === name);
      if (!s) return;
      for (let i = 0; i + 1 < gaps.length; i += 2) this.gaps.push([gaps[i], gaps[i + 1]]);
      for (let i = 0; i + 1 < samples.length; i += 2) {
        const t = samples[i], v = samples[i + 1], last = s.t.length - 1;
        if (last >= 0 && t <= (s.newest ?? s.t[last])) continue; // known
        s.newest = t;
        this.ahead = Math.max(this.ahead, t - Date.now()); // no sample is from the future
        const gap = this.gaps.some(([from, to]) => from < t && to > s.t[last]);
        if (last >= 0 && !gap && !s.state && Math.floor(t / this.step) === Math.floor(s.t[last] / this.step)) {
          s.n[last]++;
          s.v[last] += (v - s.v[last]) / s.n[last];
          s.lo[last] = Math.min(s.lo[last], v);
          s.hi[last] = Math.max(s.hi[last], v);
        } else {
          s.t.push(t); s.v.push(v); s.lo.push(v); s.hi.push(v); s.n.push(1);
        }
        s.last = v;
      }
      this.dirty = true;
    }

    // trim drops what has left the range. The one before it stays, for the line.
    trim() {
      const from = this.now() - this.length;
      for (const s of this.series) {
        let n = 0;
        while (n + 1 < s.t.length && s.t[n + 1] < from) n++;
        n = Math.max(n, s.t.length - 4096);
        if (n > 0) for (const column of [s.t, s.v, s.lo, s.hi, s.n]) column.splice(0, n);
      }
      this.gaps = this.gaps.filter((g) => g[1] > from).slice(-500);
      this.calls = this.calls.filter((c) => c.t > from).slice(-500);
    }

    // table returns the columns of all series at common times, as uPlot takes them.
    table() {
      const to = this.now();
      const tables = this.series.map((s) => {
        const t = [], v = [], lo = [], hi = [];
        for (let i = 0; i < s.t.length; i++) {
          const gap = i > 0 && this.gaps.find((g) => g[0] < s.t[i] && g[1] > s.t[i - 1]);
          if (gap) { t.push((s.t[i - 1] + s.t[i]) / 2000); v.push(null); lo.push(null); hi.push(null); }
          t.push(s.t[i] / 1000); v.push(s.v[i]); lo.push(s.lo[i]); hi.push(s.hi[i]);
        }
        if (s.state && t.length && t[t.length - 1] < to / 1000) { t.push(to / 1000); v.push(v[v.length - 1]); lo.push(null); hi.push(null); }
        return [t, v, lo, hi];
      });
      return tables.length === 1 ? tables[0] : uPlot.join(tables);
    }

    size() {
      const width = Math.max(200, this.host.clientWidth);
      return { width, height: width < 480 ? 250 : width > 900 ? 300 : 264 };
    }

    // scale never zooms in below 3 % of the value, so noise stays flat.
    scale(min, max) {
      if (min == null || max == null) return [0, 1];
      const least = 0.03 * Math.max(Math.abs(min), Math.abs(max)) || 1;
      if (max - min < least) { const mid = (min + max) / 2; min = mid - least / 2; max = mid + least / 2; }
      if (min > 0 && min < 0.35 * max) min = 0;
      const room = (max - min) * 0.08;
      return [min === 0 ? 0 : min - room, max + room];
    }

    draw() {
      const p = this.palette, self = this;
      const lines = this.series.flatMap((s, i) => {
        const stroke = p["c" + (i % 3 + 1)];
        return [
          { label: s.title, stroke, width: 1.5, points: { show: false }, paths: s.state ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear() },
          { stroke: "transparent", width: 0, points: { show: false } },
          { stroke: "transparent", width: 0, points: { show: false } },
        ];
      });
      const bands = this.series.flatMap((s, i) => (s.state ? [] : [{ series: [i * 3 + 3, i * 3 + 2], fill: p["c" + (i % 3 + 1)].replace("rgb(", "rgba(").replace(")", ", 0.1)") }]));
      const axis = { stroke: p.muted, font: "11px " + color("--font"), grid: { stroke: p.line, width: 1 }, ticks: { show: false } };
      this.tip = document.createElement("div");
      this.tip.className = "tip";
      this.tip.hidden = true;
      this.plot = new uPlot({
        ...this.size(),
        padding: [12, 58, 0, 0],
        legend: { show: false },
        cursor: { y: false, points: { size: 7 }, drag: { x: true, y: false, dist: 4 } },
        scales: { x: { time: true }, y: { range: (u, min, max) => this.scale(min, max) } },
        axes: [
          { ...axis, grid: { show: false }, size: 42, gap: 18, space: 90, values: (u, ticks) => ticks.map((t) => self.tick(t * 1000)) },
          { ...axis, size: (u, values) => 12 + 6.6 * Math.max(2, ...(values ?? []).map((v) => v.length)), gap: 6, space: 44, values: (u, ticks) => ticks.map((v) => number(v)) },
        ],
        series: [{}, ...lines],
        bands,
        hooks: {
          drawClear: [(u) => this.drawGaps(u)],
          draw: [(u) => this.drawMarks(u)],
          setSelect: [(u) => { if (u.select.width > 4) this.zoomedTo(true); }],
          setCursor: [(u) => this.point(u)],
        },
      }, this.table(), this.host);
      this.plot.over.addEventListener("dblclick", () => this.reset());
      this.host.append(this.tip);
      this.window();
    }

    tick(t) {
      const span = this.plot ? (this.plot.scales.x.max - this.plot.scales.x.min) * 1000 : this.length;
      if (span > 36 * 3600e3) return new Date(t).toLocaleDateString("en", { weekday: "short" }) + " " + clock(t);
      return clock(t, span <= 300e3);
    }

    zoomedTo(is) {
      this.zoomed = is;
      const reset = this.card.querySelector("[data-reset]");
      if (reset) reset.hidden = !is;
    }
    reset() { this.zoomedTo(false); this.window(); }
    window() {
      const to = this.now();
      this.plot.setScale("x", { min: (to - this.length) / 1000, max: to / 1000 });
    }

    // move shows new samples, and moves the range to now.
    move() {
      if (!this.plot) return;
      if (this.dirty || this.series.some((s) => s.state)) { this.trim(); this.plot.setData(this.table(), false); this.dirty = false; }
      if (this.zoomed) this.plot.redraw(false);
      else this.window();
    }

    resize() {
      const size = this.size();
      if (size.width !== this.plot.width || size.height !== this.plot.height) this.plot.setSize(size);
    }

    redraw() {
      this.palette = colors();
      const zoom = this.zoomed && { min: this.plot.scales.x.min, max: this.plot.scales.x.max };
      this.plot.destroy();
      this.tip.remove();
      this.draw();
      if (zoom) this.plot.setScale("x", zoom);
    }

    end() {
      this.observer.disconnect();
      this.plot?.destroy();
      this.plot = null;
    }

    // drawGaps hatches where samples may be missing, below the lines.
    drawGaps(u) {
      const { ctx, bbox } = u, ratio = devicePixelRatio;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      for (const [from, to] of this.gaps) {
        const left = u.valToPos(from / 1000, "x", true), right = u.valToPos(to / 1000, "x", true);
        if (right < bbox.left || left > bbox.left + bbox.width || right - left < 0.5) continue;
        ctx.fillStyle = this.palette.line;
        ctx.fillRect(left, bbox.top, right - left, bbox.height);
        ctx.save();
        ctx.beginPath();
        ctx.rect(left, bbox.top, right - left, bbox.height);
        ctx.clip();
        ctx.strokeStyle = this.palette.control;
        ctx.globalAlpha = 0.55;
        ctx.lineWidth = ratio;
        ctx.beginPath();
        for (let x = Math.max(left, bbox.left) - bbox.height; x < Math.min(right, bbox.left + bbox.width); x += 8.5 * ratio) {
          ctx.moveTo(x, bbox.top + bbox.height);
          ctx.lineTo(x + bbox.height, bbox.top);
        }
        ctx.stroke();
        ctx.restore();
      }
      ctx.restore();
    }

    // drawMarks draws calls, the labels of gaps, and the lowest, highest and last value.
    drawMarks(u) {
      const { ctx, bbox } = u, ratio = devicePixelRatio, p = this.palette;
      const font = (weight, size) => { ctx.font = weight + " " + size * ratio + "px " + color("--font"); };
      const bottom = bbox.top + bbox.height, right = bbox.left + bbox.width;
      ctx.save();
      ctx.strokeStyle = p.line2;
      ctx.lineWidth = ratio;
      ctx.beginPath(); ctx.moveTo(bbox.left, bottom); ctx.lineTo(right, bottom); ctx.stroke();
      for (const call of this.calls) {
        const x = u.valToPos(call.t / 1000, "x", true);
        if (x < bbox.left || x > right) continue;
        ctx.strokeStyle = p.muted;
        ctx.setLineDash([2 * ratio, 3 * ratio]);
        ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bottom + 12 * ratio); ctx.stroke();
        ctx.setLineDash([]);
        ctx.fillStyle = call.maybe ? p.warn : p.text;
        const y = bottom + 9 * ratio, r = 4 * ratio;
        ctx.beginPath(); ctx.moveTo(x, y - r); ctx.lineTo(x + r, y); ctx.lineTo(x, y + r); ctx.lineTo(x - r, y); ctx.fill();
      }
      font(400, 11);
      ctx.textAlign = "center";
      ctx.textBaseline = "middle";
      for (const [from, to] of this.gaps) {
        const l = Math.max(bbox.left, u.valToPos(from / 1000, "x", true)), r = Math.min(right, u.valToPos(to / 1000, "x", true));
        const words = length(to - from), wide = ctx.measureText(words).width + 8 * ratio, full = Math.max(wide, 50 * ratio);
        if (r - l < wide - 8 * ratio) continue;
        const two = r - l >= full + 8 * ratio, x = (l + r) / 2, y = bbox.top + bbox.height / 2, w = two ? full : wide, h = (two ? 36 : 18) * ratio;
        ctx.fillStyle = p.surface;
        ctx.globalAlpha = 0.88;
        ctx.fillRect(x - w / 2, y - h / 2, w, h);
        ctx.globalAlpha = 1;
        ctx.fillStyle = p.text;
        if (two) { ctx.fillText("No data", x, y - 8 * ratio); ctx.fillText(words, x, y + 8 * ratio); }
        else ctx.fillText(words, x, y);
      }
      if (this.series.length === 1) this.drawExtremes(u, font);
      this.drawLast(u, font);
      ctx.restore();
    }

    drawExtremes(u, font) {
      const { ctx, bbox } = u, ratio = devicePixelRatio, p = this.palette, s = this.series[0];
      const { min, max } = u.scales.x;
      let low = -1, high = -1;
      for (let i = 0; i < s.t.length; i++) {
        if (s.t[i] < min * 1000 || s.t[i] > max * 1000) continue;
        if (low < 0 || s.lo[i] < s.lo[low]) low = i;
        if (high < 0 || s.hi[i] > s.hi[high]) high = i;
      }
      if (low < 0 || s.lo[low] === s.hi[high]) return;
      font(600, 11);
      ctx.textBaseline = "middle";
      for (const [i, v, word, dy] of [[high, s.hi[high], "max ", -12], [low, s.lo[low], "min ", 13]]) {
        const x = u.valToPos(s.t[i] / 1000, "x", true), y = u.valToPos(v, "y", true);
        ctx.beginPath(); ctx.arc(x, y, 3 * ratio, 0, 7);
        ctx.fillStyle = p.surface; ctx.fill();
        ctx.strokeStyle = p.c1; ctx.lineWidth = 2 * ratio; ctx.stroke();
        ctx.textAlign = x < bbox.left + 30 * ratio ? "left" : x > bbox.left + bbox.width - 30 * ratio ? "right" : "center";
        ctx.strokeStyle = p.surface; ctx.lineWidth = 4 * ratio; ctx.lineJoin = "round";
        ctx.strokeText(word + number(v), x, y + dy * ratio);
        ctx.fillStyle = p.text;
        ctx.fillText(word + number(v), x, y + dy * ratio);
      }
    }

    drawLast(u, font) {
      const { ctx, bbox } = u, ratio = devicePixelRatio, p = this.palette, used = [];
      this.series.forEach((s, i) => {
        const n = s.t.length - 1;
        if (n < 0) return;
        const v = s.last ?? s.v[n], at = s.state ? this.now() : s.t[n];
        const x = u.valToPos(at / 1000, "x", true), y = u.valToPos(v, "y", true);
        if (x < bbox.left || x > bbox.left + bbox.width + 1) return;
        ctx.beginPath(); ctx.arc(x, y, 4.5 * ratio, 0, 7);
        ctx.fillStyle = p["c" + (i % 3 + 1)]; ctx.fill();
        ctx.strokeStyle = p.surface; ctx.lineWidth = 2 * ratio; ctx.stroke();
        if (used.some((other) => Math.abs(other - y) < 26 * ratio)) return;
        used.push(y);
        ctx.textAlign = "left";
        ctx.textBaseline = "alphabetic";
        font(600, 13);
        ctx.fillStyle = p.text;
        const right = bbox.left + bbox.width + 10 * ratio;
        ctx.fillText(number(v), right, y + ratio);
        font(400, 11);
        ctx.fillStyle = p.muted;
        ctx.fillText(this.unit ? this.unit + " now" : "now", right, y + 15 * ratio);
      });
    }

    // point says the values under the pointer.
    point(u) {
      const i = u.cursor.idx;
      if (i == null || u.cursor.left < 0) { this.tip.hidden = true; return; }
      const parts = [];
      this.series.forEach((s, n) => {
        const v = u.data[n * 3 + 1][i], lo = u.data[n * 3 + 2][i], hi = u.data[n * 3 + 3][i];
        if (v == null) return;
        parts.push((this.series.length > 1 ? s.title + " " : "") + withUnit(v, this.unit) + (lo != null && lo !== hi ? " (" + number(lo) + " to " + number(hi) + ")" : ""));
      });
      this.tip.hidden = parts.length === 0;
      this.tip.textContent = clock(u.data[0][i] * 1000, true) + "  " + parts.join(", ");
      const left = u.cursor.left + u.bbox.left / devicePixelRatio;
      this.tip.style.left = Math.min(Math.max(0, left - this.tip.offsetWidth / 2), this.host.clientWidth - this.tip.offsetWidth) + "px";
    }

    // reload gets the chart again, for example after the page was hidden.
    reload() {
      const source = this.card.dataset.source;
      if (source && window.htmx) window.htmx.ajax("GET", source, { target: this.card, swap: "outerHTML" });
    }
  }

  // The page is shown with pictures first. The script that draws curves is loaded after that,
  // once, and only if there is a chart.
  let loading = false;
  function load() {
    if (loading) return;
    loading = true;
    const script = document.createElement("script");
    script.src = document.body.dataset.plot;
    script.onload = () => start(document.body);
    document.head.append(script);
  }
  function start(part) {
    const found = all("[data-chart]", part);
    if (part.matches?.("[data-chart]")) found.push(part);
    if (found.length === 0) return;
    if (!window.uPlot) {
      if (document.readyState === "complete") load();
      else addEventListener("load", load, { once: true });
      return;
    }
    for (const host of found) if (!host.classList.contains("drawn")) charts.add(new Curve(host));
  }
  begin(start);

  const each = (fn) => charts.forEach((c) => {
    if (c.host.isConnected) fn(c);
    else { c.end(); charts.delete(c); }
  });

  on("samples", (message) => {
    for (const [name, s] of Object.entries(message.signals)) {
      each((c) => { if (c.device === message.device) c.add(name, s.s, s.g ?? []); });
      if (s.s.length) values(message.device, name, s.s[s.s.length - 1]);
    }
    each((c) => { if (c.dirty) c.move(); });
  });

  on("marks", (message) => each((c) => {
    if (c.device === message.device) { c.calls.push(...message.calls); c.dirty = true; c.move(); }
  }));

  // values sets numbers that show the latest value: [data-value] is the signal.
  function values(device, name, v) {
    for (const box of all('[data-values="' + CSS.escape(device) + '"]'))
      for (const e of all('[data-value="' + CSS.escape(name) + '"]', box)) e.textContent = number(v);
  }

  setInterval(() => { if (!document.hidden) each((c) => c.move()); }, 1000);
  document.addEventListener("theme", () => each((c) => c.redraw()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => each((c) => c.redraw()));

  let hidden = 0;
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) hidden = Date.now();
    else if (hidden && Date.now() - hidden > 3000) each((c) => c.reload());
  });

  // The wire: rows of new frames, the newest first.
  const waiting = [];
  let paused = false;
  function show(rows) {
    const body = document.getElementById("frames");
    if (!body) return;
    const parts = document.createElement("template");
    parts.innerHTML = "<table><tbody>" + rows + "</tbody></table>"; // drawn by the gateway, which escapes what devices say
    const fresh = [...parts.content.querySelectorAll("tr")].filter((row) => !document.getElementById(row.id));
    body.prepend(...fresh);
    while (body.children.length > 200) body.lastElementChild.remove();
  }
  on("frames", (message) => {
    const problem = document.getElementById("wire-problem");
    if (problem) { problem.hidden = !message.problem; problem.textContent = message.problem ?? ""; }
    if (!paused) show(message.rows);
    else { waiting.push(message.rows); if (waiting.length > 50) waiting.shift(); }
  });
  begin((part) => all("[data-pause]", part).forEach((button) => {
    button.hidden = false;
    button.onclick = () => {
      paused = !paused;
      button.setAttribute("aria-pressed", String(paused));
      button.querySelector("span").textContent = paused ? "Continue" : "Pause";
      if (!paused) waiting.splice(0).forEach(show);
    };
  }));
})();
