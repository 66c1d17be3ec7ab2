// Stacks of what is held, as a flame graph, and the largest blocks. `[name, bytes, [calls], installed]`.
let root = null, fold = true;
// Without frames of installed packages between two of the user's own; where there is nothing else, all.
function folded(node) {
  const calls = node[2].flatMap(c => { const f = folded(c); return f[3] && f[2].length ? f[2] : [f]; });
  const same = new Map();
  for (const c of calls) { const k = same.get(c[0]); if (k) { k[1] += c[1]; k[2] = k[2].concat(c[2]); } else same.set(c[0], [c[0], c[1], c[2], c[3]]); }
  return [node[0], node[1], [...same.values()].sort((a, b) => b[1] - a[1]), node[3]];
}
function flame() {
  const box = $("flame"), shot = lane.c[which], wanted = $("flame-search").value.toLowerCase();
  box.replaceChildren(); $("frame").textContent = "\u00a0"; $("whole").hidden = !root;
  blocks(shot);
  if (!shot) return;
  const whole = fold ? folded(shot.flame) : shot.flame, top = root || whole, w = box.clientWidth - 2, kept = leaking();
  let deepest = 0, hits = 0;
  const draw = (node, x, width, depth, inside) => {
    const hit = wanted && node[0].toLowerCase().includes(wanted), d = el("button", node === whole ? "everything that is held" : node[0], wanted && !hit ? "dim" : "");
    if (hit && !inside) hits += node[1];
    deepest = Math.max(deepest, depth);
    d.style.left = x + "px"; d.style.width = width + "px"; d.style.top = depth * 18 + "px";
    let hue = 0;
    for (const ch of node[0]) hue = (hue * 31 + ch.charCodeAt(0)) % 40;
    d.style.background = kept.has(node[0]) ? css("flame") : node[3] ? "#c9d1da" : `hsl(${195 + hue},62%,${84 - hue / 5}%)`;
    d.title = `${node[0]}\n${size(node[1])}, ${(100 * node[1] / shot.flame[1]).toFixed(1)} %`;
    d.onclick = () => { root = node === top ? null : node; flame(); $("frame").textContent = d.title; };
    d.onmouseenter = d.onfocus = () => { $("frame").textContent = d.title; };
    box.append(d);
    let at = x;
    for (const call of node[2]) { const part = width * call[1] / node[1]; if (part >= 2) draw(call, at, part, depth + 1, inside || hit); at += part; }
  };
  if (top[1] > 0) draw(top, 0, w, 0, false);
  box.style.height = (deepest + 1) * 18 + 4 + "px";
  if (wanted) $("frame").textContent = hits ? `${size(hits)} in matching frames, ${(100 * hits / shot.flame[1]).toFixed(1)} %` : "no frame matches";
}
function blocks(shot) {
  const list = shot ? shot.blocks : [];
  $("blocks-title").textContent = shot ? `Largest blocks ${which === "end" ? after() : "at the peak"}: ${number(list.length)} of ${number(shot.count)}` : "Largest blocks";
  const top = el("thead"), body = el("tbody");
  top.append(cells("th", ["line", "size", "stream", "step", "phase"]));
  body.append(...list.map(([bytes, line, stream, step, phase]) => cells("td", [line, size(bytes), stream, number(step), phase])));
  $("blocks").replaceChildren(top, body);
}
