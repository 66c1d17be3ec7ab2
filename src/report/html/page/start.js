// Everything is drawn once, and again where something is chosen.
function all() {
  findings(); cards(); mark();
  const drawn = lane && lane.c;
  $("drawn").hidden = !drawn;
  $("nothing").hidden = Boolean(drawn);
  $("nothing-said").textContent = lane ? `This page has no charts of ${lane.name}${lane.p.left_out ? " and does not show what was found there" : ""}. To see all of it, make a page of its recording alone: strandline report RECORDING --html` : "No GPU memory was recorded.";
  if (!drawn) return;
  const leak = grown();
  document.documentElement.dataset.grows = leak ? leak.certainty : "";
  $("timeline-title").textContent = stepless() ? `Memory (no ${unit()} ended)` : `Memory at the end of each ${unit()}`;
  const isAfter = lane.d.peak_step > lane.p.steps && !lane.d.oom;
  $("within-title").textContent = stepless() ? "Memory over the whole run" : isAfter ? `Memory after ${unit()} ${number(lane.p.steps)}, until the job ended` : lane.d.peak_step ? `Memory during ${unit()} ${number(lane.d.peak_step)} (the peak)` : `Memory during the ${unit()} of the peak`;
  $("ages-title").textContent = `Memory held ${after()}${stepless() ? "" : `, by the ${unit()} that allocated it`}`;
  $("which").firstChild.textContent = after();
  $("hint").textContent = `Click ${/^[aeiou]/.test(unit()) ? "an" : "a"} ${unit()} to see its memory. Drag to zoom, or use the arrow keys, +, - and Esc.`;
  steps(); moment(); within(); ages(); flame(); lines();
}
// What is drawn in colours of the page's own.
function charts() { if (lane && lane.c) { steps(); within(); ages(); } }
// Begins with another process or GPU.
function begin() {
  chosen = lane && lane.c ? Math.max(0, lane.c.steps.length - 1) : 0;
  picked = false; root = null; view = null;
  which = lane && lane.d.oom && lane.c && lane.c.at_peak ? "at_peak" : "end";
  press("which", which);
  all();
}
head();
lanes.forEach((l, i) => { const o = el("option", (processes.length > 1 ? l.name + ", " : "") + "GPU " + l.c.device + (l.d.name ? ", " + l.d.name : "")); o.value = i; $("lane").append(o); });
$("lane").hidden = lanes.length < 2;
$("lane").value = lanes.indexOf(lane);
$("lane").onchange = e => { lane = lanes[e.target.value]; begin(); };
choice("by", [["site", "by line"], ["stream", "by stream"], ["phase", "by phase"], ["class", "by kind"]], by, k => { by = k; steps(); moment(); });
choice("which", [["end", "at the end"], ["at_peak", "at the peak"]], which, k => { which = k; root = null; flame(); });
$("whole").onclick = () => { root = null; flame(); };
$("fold").onclick = () => { fold = !fold; root = null; $("fold").setAttribute("aria-pressed", String(fold)); flame(); };
$("flame-search").oninput = () => flame();
$("lines-search").oninput = () => lines();
pointer();
let wait = 0, width = innerWidth;
window.onresize = () => { if (width !== innerWidth) { width = innerWidth; cancelAnimationFrame(wait); wait = requestAnimationFrame(all); } };
begin();
document.body.dataset.drawn = "1";
