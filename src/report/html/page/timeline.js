// Memory over the steps: stacked, with the peak, what is reserved and what is left behind; hover, choose, zoom.
const columns = () => {
  const c = lane.c, kept = leaking(), grows = s => by === "class" ? s.name === "left_behind" || s.name === "growing" : by === "site" && kept.has(s.name);
  let n = 0;
  const named = c.by[by].map(s => ({ name: by !== "class" ? s.name : s.name === "other" ? "unclassified" : s.name === "left_behind" ? "left behind" : s.name.replaceAll("_", " "), bytes: s.bytes, color: grows(s) ? css("grow") : color(n++) }));
  const rest = c.allocated.map((a, i) => Math.max(0, a - named.reduce((n, s) => n + s.bytes[i], 0)));
  if (rest.some(n => n)) named.push({ name: by === "site" ? "all other lines" : "not recorded as blocks", bytes: rest, color: css("rest") });
  return named;
};
// Lines, by their names, of which a finding says that they leave memory behind.
const leaking = () => new Set(lane.c.table.filter(r => r.leak).map(r => r.site));
let view = null, scale = null, stacked = [];
const grown = () => lane.p.findings.find(f => f.device === lane.c.device && counts(f) && noun(f.grain) === unit());
function steps() {
  const c = lane.c, [g, w, h] = canvas("steps"), left = 78, bottom = 26, n = c.steps.length;
  $("reset").hidden = !view;
  scale = null;
  if (!n) return;
  const whole = [c.steps[0], c.steps[n - 1]], [first, last] = view || whole, leak = grown(), ended = lane.d.oom;
  const cone = !view && leak && !ended && leak.steps_to_oom && leak.steps_to_oom.mid !== null && c.capacity ? leak.steps_to_oom : null;
  // All of the way to the card's end where that is not far, else the beginning of it.
  const reach = cone ? cone.mid * 1.1 : 0, right = cone ? last + (reach <= 1.2 * (last - first) ? reach : Math.max(4, (last - first) * 0.25)) : last;
  const from = Math.max(0, c.steps.findIndex(s => s >= first) - 1);
  let to = c.steps.findIndex(s => s > last);
  to = to < 0 ? n - 1 : to;
  const seen = list => list.slice(from, to + 1), high = list => seen(list).reduce((a, b) => Math.max(a, b), 0);
  const ahead = cone ? c.peak[n - 1] + (c.capacity - c.peak[n - 1]) * Math.min(1, (right - last) / Math.max(cone.mid, 1)) : 0;
  const most = Math.max(high(c.peak), high(c.reserved), ahead, 1), near = c.capacity && (most > c.capacity * 0.3 || cone && right >= last + cone.mid);
  const top = (near ? c.capacity : most) * 1.06;
  const x = s => left + (w - left - 10) * (right > first ? (s - first) / (right - first) : 0.5), y = b => h - bottom - (h - bottom - 8) * b / top;
  scale = { x, left, first, right, w, from, to };
  levels(g, w, h, top, left, bottom, 5);
  g.save(); g.beginPath(); g.rect(left, 0, w - left, h - bottom + 1); g.clip();
  stacked = columns();
  const base = new Array(n).fill(0);
  for (const s of stacked) {
    g.fillStyle = s.color; g.globalAlpha = 0.88; g.beginPath();
    for (let i = from; i <= to; i++) g.lineTo(x(c.steps[i]), y(base[i] + s.bytes[i]));
    for (let i = to; i >= from; i--) { g.lineTo(x(c.steps[i]), y(base[i])); base[i] += s.bytes[i]; }
    g.fill(); g.globalAlpha = 1;
  }
  // Where there are more points than can be told apart, the highest of each few, above a shade from the lowest to the highest.
  const few = Math.max(1, Math.ceil(3 * (to - from + 1) / Math.max(1, x(c.steps[to]) - x(c.steps[from]))));
  const line = (v, style, width, dash) => {
    const points = [];
    for (let i = from; i <= to; i += few) { const part = v.slice(i, Math.min(i + few, to + 1)); points.push([x(c.steps[Math.min(to, i + (few >> 1))]), Math.max(...part), Math.min(...part)]); }
    g.fillStyle = g.strokeStyle = style;
    if (few > 1) { g.globalAlpha = .16; g.beginPath(); points.forEach(p => g.lineTo(p[0], y(p[1]))); points.reverse().forEach(p => g.lineTo(p[0], y(p[2]))); points.reverse(); g.fill(); g.globalAlpha = 1; }
    g.lineWidth = width; g.setLineDash(dash || []); g.beginPath(); points.forEach(p => g.lineTo(p[0], y(p[1]))); g.stroke(); g.setLineDash([]); g.lineWidth = 1;
  };
  line(c.peak, css("ink"), 1.4); line(c.reserved, css("soft"), 1, [4, 3]);
  const behind = leak && c.left.some(b => b);
  if (behind) line(c.left, css("edge"), 2);
  if (c.capacity && c.capacity <= top) {
    g.strokeStyle = css("bad"); g.setLineDash([7, 4]); g.beginPath(); g.moveTo(left, y(c.capacity)); g.lineTo(w, y(c.capacity)); g.stroke(); g.setLineDash([]);
    g.fillStyle = css("bad"); g.textAlign = "left"; g.fillText("capacity " + size(c.capacity), left + 6, y(c.capacity) - 4);
  }
  if (cone && right > last) {
    const now = c.peak[n - 1], to = k => [x(right), y(Math.min(c.capacity, now + (c.capacity - now) * (right - last) / k))];
    g.globalAlpha = .2; g.fillStyle = css("grow"); g.beginPath(); g.moveTo(x(last), y(now)); g.lineTo(...to(Math.max(cone.low, 1)));
    if (cone.high !== null) g.lineTo(...to(cone.high)); else g.lineTo(x(right), y(now));
    g.fill(); g.globalAlpha = 1;
    g.strokeStyle = css("grow"); g.setLineDash([2, 3]); g.beginPath(); g.moveTo(x(last), y(now)); g.lineTo(...to(Math.max(cone.mid, 1))); g.stroke(); g.setLineDash([]);
    g.fillStyle = css("soft"); g.textAlign = "left"; g.fillText("forecast", x(last) + 6, 20);
  }
  // A vertical line with a name, which is left out where another one is already.
  let taken = -1;
  const flag = (s, text, style, level) => {
    const at = x(s), short = text.length > 28 ? text.slice(0, 27) + "…" : text, wide = g.measureText(short).width + 8, right = at + wide > w;
    g.strokeStyle = g.fillStyle = style; g.setLineDash([3, 3]); g.beginPath(); g.moveTo(at, 8); g.lineTo(at, h - bottom); g.stroke(); g.setLineDash([]);
    if (level && (right ? at - wide : at) < taken) return;
    if (level) taken = right ? at : at + wide;
    const line = level ? 34 : 20;
    g.fillStyle = css("paper"); g.globalAlpha = .8; g.fillRect(right ? at - wide + 2 : at + 2, line - 11, wide - 4, 15); g.globalAlpha = 1; g.fillStyle = style;
    g.textAlign = right ? "right" : "left"; g.fillText(short, at + (right ? -4 : 4), line);
  };
  c.marks.slice(0, 30).forEach(([s, text]) => { if (s >= first && s <= right) flag(s, text, css("soft"), 1); });
  if (ended) flag(last, "out of memory", css("bad"));
  const at = c.steps[chosen];
  if (at >= first && at <= right) { g.strokeStyle = css("ink"); g.beginPath(); g.moveTo(x(at), 4); g.lineTo(x(at), h - bottom); g.stroke(); }
  g.restore();
  g.fillStyle = css("soft"); g.textAlign = "right"; g.fillText(unit(), left - 6, h - 8); g.textAlign = "center";
  for (const s of ticks(first, right, Math.max(5, w / 90))) g.fillText(number(s), Math.max(left + 6, Math.min(x(s), w - 20)), h - 8);
  $("steps").setAttribute("aria-label", stepless() ? `Memory of the job: at most ${size(lane.d.peak_allocated_bytes)}` : `Memory over ${many(unit())} ${number(first)} to ${number(last)}: at most ${size(high(c.peak))}, ${size(c.allocated[to])} at the end${!view && lane.d.peak_allocated_bytes > high(c.peak) ? `, and at most ${size(lane.d.peak_allocated_bytes)} after that` : ""}` + (leak ? `, growing by ${size(Math.round(leak.bytes_per_step))} every ${unit()}` : ""));
  const shown = stacked.slice(0, 12), hidden = stacked.length - shown.length;
  const key = shown.map(s => [s.color, s.name]).concat(hidden > 0 ? [["", `and ${hidden} more`]] : [], [[css("ink"), `peak within the ${unit()}`, 1], [css("soft"), "reserved", 2]], behind ? [[css("edge"), `left behind by earlier ${unit()}s`, 1]] : []);
  $("legend").replaceChildren(...key.map(([k, t, stroke]) => {
    const s = el("span"), i = el("i", undefined, stroke ? stroke === 2 ? "stroke dash" : "stroke" : "");
    if (stroke) i.style.borderColor = k; else i.style.background = k;
    if (k) s.append(i);
    s.append(t); s.title = t;
    return s;
  }));
}
const stepAt = px => Math.min(scale.right, Math.max(scale.first, scale.first + (scale.right - scale.first) * (px - scale.left) / (scale.w - scale.left - 10)));
function nearest(step) {
  const v = lane.c.steps;
  let low = 0, high = v.length - 1;
  while (low < high) { const mid = low + high >> 1; if (v[mid] < step) low = mid + 1; else high = mid; }
  return low > 0 && step - v[low - 1] < v[low] - step ? low - 1 : low;
}
function pick(i) { chosen = Math.min(lane.c.steps.length - 1, Math.max(0, i)); picked = true; steps(); moment(); }
function zoom(range) { view = range && range[1] - range[0] >= 1 ? range : null; steps(); }
function hover(px) {
  const i = nearest(stepAt(px)), c = lane.c, at = scale.x(c.steps[i]), tip = $("tip");
  if (at < scale.left - 1) return away();
  $("cursor").hidden = tip.hidden = false;
  $("cursor").style.left = at + "px";
  const rows = [[`${unit()} ${number(c.steps[i])}`, size(c.allocated[i])], ["peak within it", size(c.peak[i])], ["reserved", size(c.reserved[i])]];
  if (c.left[i]) rows.push([`left behind by earlier ${unit()}s`, size(c.left[i])]);
  const parts = stacked.map(s => [s.name, s.bytes[i], s.color]).filter(r => r[1]).sort((a, b) => b[1] - a[1]).slice(0, 6);
  tip.replaceChildren(...rows.map(([a, b]) => line(a, b)), ...parts.map(([a, b, k]) => line(a, size(b), k)));
  if (at > scale.w / 2) { tip.style.left = "auto"; tip.style.right = scale.w - at + 12 + "px"; } else { tip.style.right = "auto"; tip.style.left = at + 12 + "px"; }
  function line(a, b, k) { const d = el("div"), s = el("span"); if (k) { const m = el("i"); m.style.background = k; s.append(m); } s.append(a); d.append(s, el("span", b)); return d; }
}
function away() { $("cursor").hidden = $("tip").hidden = true; }
function pointer() {
  const plot = $("steps"), brush = $("brush");
  let down = null;
  plot.onpointerdown = e => { if (scale && e.button === 0) { down = e.offsetX; plot.setPointerCapture(e.pointerId); } };
  plot.onpointermove = e => {
    if (!scale) return;
    hover(e.offsetX);
    if (down === null || Math.abs(e.offsetX - down) < 5) { brush.hidden = true; return; }
    brush.hidden = false;
    brush.style.left = Math.min(down, e.offsetX) + "px"; brush.style.width = Math.abs(e.offsetX - down) + "px";
  };
  plot.onpointerup = e => {
    if (down === null || !scale) return;
    const ends = [stepAt(down), stepAt(e.offsetX)].sort((a, b) => a - b).map(Math.round);
    if (Math.abs(e.offsetX - down) >= 5) zoom(ends); else pick(nearest(stepAt(e.offsetX)));
    down = null; brush.hidden = true;
  };
  plot.onpointerleave = away;
  plot.ondblclick = () => zoom(null);
  $("reset").onclick = () => zoom(null);
  plot.onkeydown = e => {
    const n = lane.c.steps.length, around = k => { const [a, b] = view || [lane.c.steps[0], lane.c.steps[n - 1]], m = lane.c.steps[chosen], half = Math.max(2, (b - a) * k / 2); zoom(k > 1 && half * 2 >= lane.c.steps[n - 1] - lane.c.steps[0] ? null : [Math.round(Math.max(lane.c.steps[0], m - half)), Math.round(Math.min(lane.c.steps[n - 1], m + half))]); };
    const act = { ArrowLeft: () => pick(chosen - 1), ArrowRight: () => pick(chosen + 1), Home: () => pick(0), End: () => pick(n - 1), "+": () => around(0.5), "=": () => around(0.5), "-": () => around(2), Escape: () => zoom(null) }[e.key];
    if (act && n) { act(); e.preventDefault(); }
  };
}
