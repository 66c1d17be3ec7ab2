// Everything is drawn once, and again where something is chosen.
function all() {
  findings(); cards(); ranks();
  const drawn = lane && lane.c;
  $("drawn").hidden = !drawn;
  $("nothing").hidden = Boolean(drawn);
  $("nothing-said").textContent = lane ? `The GPUs of ${lane.name} are not drawn here: a report of its recording alone draws them${lane.p.left_out ? " and tells what was found" : ""}.` : "No GPU memory was recorded.";
  if (drawn) { steps(); moment(); within(); ages(); flame(); lines(); }
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
$("lane").onchange = e => { lane = lanes[e.target.value]; begin(); };
choice("by", [["site", "by line"], ["stream", "stream"], ["phase", "phase"], ["class", "class"]], by, k => { by = k; steps(); moment(); });
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
