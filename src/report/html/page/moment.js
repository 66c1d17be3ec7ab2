// One moment: what was held at the end of a step, what filled the device, the step of the peak, and the ages of what is held.
function rows(id, list, total) {
  const head = list.length && total ? [cells("th", ["part", "size", `of ${size(total)}`])] : [];
  $(id).replaceChildren(...head, ...list.map(([name, bytes, cls, color]) => {
    // A part of another row is no share of the whole.
    const part = name.startsWith("of this"), r = el("tr", undefined, cls), share = total ? 100 * bytes / total : 0, first = el("td"), bar = el("i", undefined, "share");
    if (color) { const i = el("i", undefined, "key"); i.style.background = color; first.append(i); }
    bar.style.width = Math.min(100, share) + "%";
    first.append(name);
    if (share >= 0.5 && !part) first.append(bar);
    r.append(first, el("td", size(bytes)), el("td", total && !part ? share.toFixed(1) + " %" : ""));
    return r;
  }));
}
// When what is shown as of the end was held: a step that failed has none.
const after = () => lane.d.oom && lane.c.end && lane.c.end.step ? `after ${unit()} ${number(lane.c.end.step)}` : "at the end";
function moment() {
  const c = lane.c, i = chosen;
  if (!c.steps.length) { $("moment").textContent = "No training step was seen"; return; }
  const failed = c.steps[i] > lane.p.steps && lane.d.oom;
  $("moment").textContent = `Held ${stepless() ? failed ? "when an allocation failed" : "at the end" : `${failed ? "when an allocation failed in" : "at the end of"} ${unit()} ${number(c.steps[i])}`}: ${size(c.allocated[i])}` + (c.reserved[i] ? ` of ${size(c.reserved[i])} reserved` : "");
  const list = columns().map(s => [s.name, s.bytes[i], "", s.color]).filter(r => r[1] > 0).sort((a, b) => b[1] - a[1]);
  const cls = grown() ? grown().certainty === "leak" ? "bad" : "doubt" : "soft";
  if (c.left[i]) list.unshift([`of this, left behind by earlier ${unit()}s`, c.left[i], cls]);
  if (c.pending[i]) list.push(["also: freed, but a stream may still use it", c.pending[i], "soft"]);
  rows("held", list.slice(0, 16), c.allocated[i]);
  const fill = (known, whole) => {
    const sum = known.reduce((n, r) => n + r[1], 0);
    if (whole > sum) known.push(["CUDA, libraries, other processes and free memory", whole - sum, "soft"]);
    rows("filled", known, Math.max(sum, whole || 0));
  };
  const row = (k, b) => [k === "other" ? "unclassified" : k === "left_behind" ? "left behind by earlier " + many(unit()) : k === "growing" ? "growing: replaced by larger ones again and again, old and new blocks" : k === "suppressed" ? "growth that is suppressed" : k === "cached" ? "cached by PyTorch, not in use" : k.replaceAll("_", " "), b, k === "left_behind" || k === "growing" ? cls : ""], a = lane.d.anatomy;
  if (picked || !a) {
    $("filled-title").textContent = `GPU memory at the end of ${unit()} ` + number(c.steps[i]);
    const parts = c.classes.map(k => row(k.name, k.bytes[i])).concat([row("pending", c.pending[i]), row("cached", Math.max(0, c.reserved[i] - c.allocated[i] - c.pending[i]))]);
    return fill(parts.filter(r => r[1]), c.capacity);
  }
  $("filled-title").textContent = `GPU memory ${a.at === "oom" ? `when an allocation failed in ${unit()} ${number(a.step)}` : stepless() ? `at the peak (no ${unit()} ended)` : `at the peak, ${inStep(lane.p, a.step)}`}`;
  const known = { ...a, "CUDA context": a.context, libraries: a.libraries && a.libraries - (a.context || 0) };
  fill(["weights", "gradients", "optimizer", "activations", "temporaries", "left_behind", "growing", "suppressed", "other", "before_recording", "pending", "cached", "CUDA context", "libraries", "other_processes", "free"].map(k => row(k, known[k])).filter(r => r[1]), c.capacity);
}
function within() {
  const v = lane.c.within, [g, w, h] = canvas("within"), left = 78, bottom = 22;
  if (!v.length) return;
  const end = v[v.length - 1][0] * 1.02 || 1, highest = v.reduce((n, p) => Math.max(n, p[1]), 1), top = highest * 1.06;
  levels(g, w, h, top, left, bottom, 3);
  g.fillStyle = color(0); g.globalAlpha = .85; g.beginPath(); g.moveTo(left, h - bottom);
  let y = h - bottom;
  for (const [t, b] of v) { const px = left + (w - left - 8) * t / end; g.lineTo(px, y); y = h - bottom - (h - bottom - 8) * b / top; g.lineTo(px, y); }
  g.lineTo(w - 8, y); g.lineTo(w - 8, h - bottom); g.fill(); g.globalAlpha = 1;
  const clock = end >= 1e6 ? [1e6, "s"] : [1000, "ms"], marks = ticks(0, end / clock[0], w / 110);
  g.fillStyle = css("soft"); g.textAlign = "center";
  (marks.length > 1 ? marks : [0, end / clock[0]]).forEach(t => g.fillText(`${Number(t.toFixed(1))} ${clock[1]}`, Math.max(left + 10, Math.min(w - 22, left + (w - left - 8) * t * clock[0] / end)), h - 6));
  $("within").setAttribute("aria-label", `${$("within-title").textContent}, which took ${(end / 1000).toFixed(1)} ms: at most ${size(highest)}`);
}
function ages() {
  const v = lane.c.end ? lane.c.end.ages : [], [g, w, h] = canvas("ages"), left = 78, bottom = 22;
  $("ages").setAttribute("aria-label", $("ages-title").textContent);
  if (!v.length) return;
  const last = Math.max(lane.c.end.step, v[v.length - 1][0], 1), top = v.reduce((n, a) => Math.max(n, a[1]), 1) * 1.06, leak = grown();
  levels(g, w, h, top, left, bottom, 3);
  const wide = Math.max(3, (w - left - 8) / last - 1), x = s => left + (w - left - 8 - wide) * (s - 1) / Math.max(1, last - 1);
  for (const [s, b] of v) {
    g.fillStyle = leak && s <= last - 2 && s > Math.max(1, leak.first_step - 1) ? css("grow") : color(0);
    const t = (h - bottom - 8) * b / top;
    g.fillRect(x(s), h - bottom - t, wide, t);
  }
  g.fillStyle = css("soft"); g.textAlign = "center";
  const list = ticks(1, last, w / 90);
  (list.length ? list : [1, last]).forEach(s => g.fillText(number(s), Math.max(left + 6, Math.min(w - 20, x(s) + wide / 2)), h - 6));
  g.textAlign = "right"; g.fillText(unit(), left - 6, h - 6);
}
