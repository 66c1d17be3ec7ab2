// What all parts of the page use: the data, elements, and how quantities are written.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const el = (tag, text, cls) => { const e = document.createElement(tag); if (text !== undefined && text !== null) e.textContent = text; if (cls) e.className = cls; return e; };
const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
// As the text writes sizes: one decimal below 100, none where it is 0 but in GiB, whose figures are compared.
const size = b => {
  if (b === null || b === undefined) return "unknown";
  let i = 0, n = Math.abs(b);
  while (n >= 1023.5 && i < 4) { n /= 1024; i++; }
  const digits = n.toFixed(i && n < 99.95 ? 1 : 0), text = i === 3 ? digits : digits.replace(/\.0$/, "");
  return (b < 0 ? "-" : "") + text + "\u00a0" + (i ? units[i] : text === "1" ? "byte" : "bytes");
};
const time = s => s < 1 ? "less than 1 s" : s < 60 ? `${Math.round(s)} s` : s < 3600 ? `${Math.floor(s / 60)} min${Math.floor(s % 60) ? ` ${Math.floor(s % 60)} s` : ""}` : s < 86400 ? `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min` : `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
const number = n => n.toLocaleString("en-US");
const many = word => word + (word.endsWith("ch") ? "es" : "s");
const plural = (n, word) => `${number(n)} ${n === 1 ? word : many(word)}`;
// What a finding is counted by, as people say it, and what the job that is shown is counted by.
const noun = grain => grain === "tick" ? "second" : grain;
// A step, or what came after the last one of a job that has ended.
const inStep = (p, n) => {
  const step = `in ${unit()} ${number(n)}`, ended = p.ended !== "running";
  if (ended && p.devices.some(d => d.oom && d.oom.step === n)) return `${step}, in which memory ran out`;
  return ended && p.steps && n > p.steps ? `after ${unit()} ${number(p.steps)}, the last one` : ended && !p.steps ? `(no ${unit()} ended)` : step;
};
// The job ended, and no step of it did.
const stepless = () => !lane.p.steps && lane.p.ended !== "running";
const unit = () => lane && {time: "second", iteration: "iteration"}[lane.p.step_source] || "step";
const percent = x => (100 * x).toFixed(x < 0.1 ? 1 : 0) + " %";
// A function's own name, as the text has it.
const called = x => x.function.split("<locals>.").pop();
const place = x => x.file + (x.line ? ":" + x.line : "");
const packages = /^.*\/(?:site|dist)-packages\//;
// A file of an installed package by its path within the package, one of the job's own from the first of its folders that it lies below.
const near = x => {
  const folder = packages.test(x.file) ? undefined : data.told.folders.find(f => x.file.startsWith(f + "/"));
  return folder === undefined ? place(x).replace(packages, "") : place(x).slice(folder.length + 1);
};
// A place as text that shows its whole path when pointed at, and where the page was asked for with --source-links as a link to it. A
// repository has its own files, and no packages.
const linked = (x, text) => {
  const to = data.told.links, is = to && x.file.startsWith(to.root + "/") && !(to.root && packages.test(x.file)), a = el(is ? "a" : "span", text);
  if (text !== place(x)) a.title = place(x);
  if (!is) return a;
  a.href = to.before + x.file.slice(to.root.length).split("/").map(encodeURIComponent).join("/") + (x.line ? to.line + x.line : "");
  return a;
};
// Text in which `code` stands between backticks.
const worded = text => text.split("`").map((part, i) => i % 2 ? el("code", part) : part);
const cells = (tag, list) => { const r = el("tr"); r.append(...list.map(t => el(tag, t))); return r; };
// Columns are differences from one point to the next; `[n, times]` is the same one many times.
const sums = list => { let n = 0; return list.flatMap(d => d.length ? Array(d[1]).fill(d[0]) : [d]).map(d => n += d); };
// Names stand once, in `words`; a frame's bytes are 0 where they are its caller's.
const named = f => ({ ...f, flame: frame(f.flame, 0), blocks: f.blocks.map(([bytes, line, on, step, phase]) => [bytes, data.words[line], data.words[on], step, data.words[phase]]) });
const frame = ([name, bytes, calls, installed], around) => [data.words[name], bytes || around, calls.map(c => frame(c, bytes || around)), installed];
const processes = data.report.processes || [];
const lanes = [];
for (const i of data.told.order) for (const c of data.charts[i] || []) {
  for (const k of ["steps", "allocated", "reserved", "pending", "peak", "left"]) c[k] = sums(c[k]);
  for (const k of c.classes) k.bytes = sums(k.bytes);
  for (const by in c.by) for (const k of c.by[by]) k.bytes = sums(k.bytes);
  const [at, held] = c.within.map(sums);
  c.within = at.map((t, k) => [t, held[k]]);
  c.table = c.table.map(([line, on, bytes, blocks, allocs, frees, leak]) => ({ site: data.words[line], stream: data.words[on], bytes, blocks, allocs, frees, leak: Boolean(leak) }));
  for (const k of ["end", "at_peak"]) if (c[k]) c[k] = named(c[k]);
  c.by.class = c.classes.filter(k => k.bytes.some(b => b));
  lanes.push({ i, p: processes[i], name: data.told.names[i], c, d: processes[i].devices.find(d => d.index === c.device) || {} });
}
let lane = lanes[0], by = "site", chosen = 0, picked = false, which = "end";
const counts = f => f.withdrawn_step === null && !f.suppressed_by && (f.certainty === "leak" || f.certainty === "growing");
// The GPU that is shown first: of the first process the one that fails or has what grows.
lane = lanes.find(l => l.p === lane.p && (l.d.oom || l.p.findings.some(f => counts(f) && f.device === l.d.index))) || lane;
const css = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
// No red and no orange: those are the colours of what grows.
const palette = ["#4e79a7", "#59a14f", "#b07aa1", "#76b7b2", "#8f8ac4", "#9aae5b", "#6f9fd8", "#7d8ea3", "#c7a3d9", "#3f8f86", "#a0cbe8", "#8cd17d"];
const color = i => palette[i % palette.length];
// Copies a text; a page that lies on a disk may have no clipboard of the newer kind.
function copyable(text, what) {
  const b = el("button", "copy", "copy");
  b.setAttribute("aria-label", "copy " + what);
  b.onclick = () => {
    const old = () => { const t = el("textarea"); t.value = text; document.body.append(t); t.select(); const done = document.execCommand("copy"); t.remove(); return done; };
    const said = done => { b.textContent = done ? "copied" : "not copied"; setTimeout(() => { b.textContent = "copy"; }, 1200); };
    if (navigator.clipboard && window.isSecureContext) navigator.clipboard.writeText(text).then(() => said(true), () => said(old())); else said(old());
  };
  return b;
}
// Buttons of which one is pressed.
function choice(box, list, now, act) {
  for (const [key, text] of list) {
    const b = el("button", text);
    b.dataset.key = key;
    b.onclick = () => { act(key); press(box, key); };
    $(box).append(b);
  }
  press(box, now);
}
const press = (box, key) => $(box).querySelectorAll("button").forEach(b => b.setAttribute("aria-pressed", String(b.dataset.key === key)));
function canvas(id) {
  const c = $(id), w = c.clientWidth, h = c.clientHeight, k = window.devicePixelRatio || 1;
  c.width = w * k; c.height = h * k;
  const g = c.getContext("2d");
  g.scale(k, k); g.font = "11px system-ui,sans-serif"; g.clearRect(0, 0, w, h);
  return [g, w, h];
}
// The next round number at or above n: 1, 2 or 5 and zeros.
const round = n => { const p = 10 ** Math.floor(Math.log10(Math.max(n, 1e-9))); return p * [1, 2, 5, 10].find(k => k * p >= n * 0.999); };
// Horizontal lines at round sizes, up to `top` bytes.
function levels(g, w, h, top, left, bottom, wanted) {
  let unit = 1;
  while (top / unit >= 1024) unit *= 1024;
  const step = Math.max(1, round(top / unit / wanted)) * unit, enough = k => top / step * k >= Math.min(3, wanted);
  const fine = enough(1) || unit === 1 ? step : step / (enough(2) ? 2 : 4);
  g.strokeStyle = css("grid"); g.fillStyle = css("soft"); g.textAlign = "right"; g.lineWidth = 1;
  for (let v = 0; v <= top; v += fine) {
    const y = h - bottom - (h - bottom - 8) * v / top;
    g.beginPath(); g.moveTo(left, y); g.lineTo(w, y); g.stroke();
    const n = v / unit;
    g.fillText(v ? `${Number(n.toFixed(2))} ${units[Math.round(Math.log2(unit) / 10)]}` : "0", left - 6, y + 4);
  }
}
// Round numbers between two, at most so many.
function ticks(from, to, most) {
  const step = Math.max(1, round((to - from) / Math.max(most, 1))), list = [];
  for (let v = Math.ceil(from / step) * step; v <= to; v += step) list.push(v);
  return list;
}
