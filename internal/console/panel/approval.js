// Shows what waits for a person. The person answers in the console: a panel cannot.
const statusTool = "gateway__approval_status";
let shown = [];
let offset = 0; // of the gateway's clock

on.input = () => note("Looking for calls that wait …");
on.cancelled = (reason) => note("Cancelled. " + reason);
on.result = (r) => {
  const o = outcome(r);
  if (o.data) draw(o.data);
  else note(o.text);
};

function draw(d) {
  offset = Date.parse(d.time) - Date.now() || 0;
  const now = (d.approvals || []).filter((a) => a.state === "waiting");
  const gone = shown.filter((b) => !now.some((a) => a.id === b.id));
  shown = now;
  const cards = now.map((a) => card(a, d.console));
  for (const a of gone.slice(0, 3)) cards.push(over(a, d.approvals || []));
  if (cards.length === 0) return note("No call of yours waits for approval.");
  show(...cards);
  tick();
}

function head(a, tone, name, more) {
  return el(
    "header",
    {},
    el("span", { class: "tile " + tone }, icon(name)),
    el("div", { class: "fx" }, el("h2", {}, clip(a.tool, 80) + " on " + a.device + "?"), more),
    a.effect === "endangers" ? badge("line bad", "danger", "Endangers") : badge("line", a.effect === "reads" ? "eye" : "change", a.effect === "reads" ? "Reads" : "Changes"),
  );
}

function card(a, console) {
  const facts = el("dl", { class: "kv" });
  const fact = (name, ...value) => facts.append(el("dt", {}, name), el("dd", {}, ...value));
  fact("Call", el("pre", {}, a.tool + " " + hidden(a.exact)));
  fact("Asked by", a.caller + (a.program ? ", " + a.program : ""));
  fact("Now", a.now);
  if (a.reason) fact("Why", a.reason);
  fact("Until", clock(a.expires));
  const open = console && host.openLinks
    ? el("button", { class: "btn sm push", type: "button", onclick: () => link(console) }, "Open", icon("link", "s"))
    : null;
  const where = console ? (open ? "" : " " + console) : " Run `ferrule approvals`.";
  return el(
    "section",
    { class: "card", "data-approval": a.id },
    head(a, "ask", "lock", el("p", { class: "small muted" }, "Waiting for a person, ", el("span", { class: "num", "data-until": a.expires }), " left")),
    el("div", { class: "pad" }, facts),
    el("footer", {}, el("span", {}, "You decide in the console, not in this chat." + where), open),
  );
}

// over says what is known of a request that no longer waits.
function over(a, all) {
  const now = all.find((b) => b.id === a.id);
  const text = now && now.state === "allowed" ? "A person allowed it." : "It no longer waits: it was answered, or its time is over. The result of the call says which.";
  return el("section", { class: "card", "data-approval": a.id }, head(a, "", "clock"), el("div", { class: "pad t2", role: "status" }, text));
}

// hidden makes characters visible that could change how a text looks.
const hidden = (text) => text.replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]|[\u{e0000}-\u{e007f}]/gu, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");

async function link(url) {
  try {
    const r = await request("ui/open-link", { url }, 30);
    if (r.isError) throw new Error("refused");
  } catch {
    for (const f of panel.querySelectorAll("footer > span")) f.textContent = "This program does not open links. The console is at " + url;
  }
}

function tick() {
  for (const e of panel.querySelectorAll("[data-until]")) {
    const left = Math.max(0, Math.round((Date.parse(e.dataset.until) - Date.now() - offset) / 1000));
    e.textContent = Math.floor(left / 60) + ":" + two(left % 60);
  }
}

setInterval(tick, 1000);
every(3, async () => {
  if (shown.length === 0) return true;
  const o = await callTool(statusTool, {}, 30);
  if (o.data) draw(o.data);
  return !!o.data;
});
start("approval");
