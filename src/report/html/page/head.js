// What happened, in the report's first words; what failed; all processes.
function head() {
  const r = data.report, told = data.told;
  $("top").dataset.tone = told.class;
  $("verdict").append(el("span", told.phrase, told.class), ...worded(told.reason));
  $("means").hidden = !told.means.length;
  $("means").textContent = told.means.map(said => said[0].toUpperCase() + said.slice(1) + ".").join(" ");
  document.title = told.phrase + " · strandline";
  $("tool").textContent = r.tool;
  const gpus = processes.reduce((n, p) => n + p.devices.length, 0);
  const drawn = gpus > lanes.length ? `${lanes.length} of ${gpus} GPUs have charts here: those of the processes at the top of the table` : "";
  const isWorker = (r.command || []).some(word => word.includes("multiprocessing.spawn"));
  $("facts").textContent = [isWorker ? "a multiprocessing worker" : (r.command || []).map((word, i) => i ? word : word.replace(/^.*\//, "")).join(" "), drawn].filter(Boolean).join(" · ");
  $("failure").hidden = !told.failed.some(said => said.length);
  told.order.filter(i => told.failed[i].length).forEach(i => {
    const list = el("dl");
    told.failed[i].forEach(([label, text]) => list.append(el("dt", label), el("dd", text)));
    if (processes.length > 1) $("failed").append(el("h3", told.names[i]));
    $("failed").append(list);
  });
  const saved = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const dress = theme => { document.documentElement.dataset.theme = theme; $("theme").textContent = theme === "dark" ? "light" : "dark"; };
  dress(saved);
  $("theme").onclick = () => { dress(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); charts(); };
  addEventListener("beforeprint", () => { dress("light"); charts(); });
  $("job-search").oninput = ranks;
  ranks();
}
// The few numbers of the process that is shown.
function cards() {
  const p = lane ? lane.p : processes[0], list = [], d = lane ? lane.d : {};
  const card = (value, what) => { if (value) list.push([value, what]); };
  if (p) {
    const share = d.capacity_bytes ? `, ${percent(d.peak_allocated_bytes / d.capacity_bytes)} of ${size(d.capacity_bytes)}` : "";
    if (d.peak_allocated_bytes) card(size(d.peak_allocated_bytes), `peak${d.peak_step ? ` ${inStep(p, d.peak_step)}` : ""}${share}`);
    if (d.oom) card(size(d.oom.requested_bytes), `requested when memory ran out${d.oom.step ? ` in ${unit()} ${number(d.oom.step)}` : ""}`);
    const grown = p.findings.filter(f => counts(f) && f.device === d.index), f = grown[0];
    if (f) card(`${f.bytes_per_step < 0 ? "" : "+"}${size(Math.round(f.bytes_per_step))}`, `every ${noun(f.grain)} since ${noun(f.grain)} ${number(f.first_step)}`);
    if (f) card(size(grown.reduce((n, g) => n + g.bytes_now, 0)), remade(f) ? "grown so far" : `left behind by earlier ${noun(f.grain)}s`);
    const when = f && !d.oom && ahead(p, f);
    if (when) card(when.size, `until GPU ${d.index} is full${when.range}`);
    const steps = number(p.steps || 0), counted = word => plural(p.steps, word).slice(steps.length + 1);
    if (p.steps !== null) card(steps, unit() === "step" ? counted("training step") : `${counted(unit())}; no training steps were seen`);
  }
  const cost = p && p.cost.step_time_fraction, name = lanes.length === 1 && d.name ? [`GPU ${d.index}, ${d.name}`] : [];
  $("recorded").textContent = p ? [...name, `${plural(p.events, "event")} recorded, ${number(p.events_lost)} lost`, ...cost === null ? [] : [`recording took ${percent(cost)} of ${unit() === "step" ? "the step time" : "the job's time"}`]].join(" · ") : "";
  // A number stays with its unit where a line is full.
  const whole = value => value.replace(/(\d) (?=[a-z])/gi, "$1\u00a0");
  $("cards").replaceChildren(...list.map(([value, what]) => { const c = el("div"); c.append(el("b", whole(value)), el("span", what)); return c; }));
}
function ranks() {
  const rows = data.told.processes, wanted = $("job-search").value.toLowerCase();
  $("job").hidden = !rows.length;
  $("differ").hidden = !data.told.ranks.length;
  $("differ").replaceChildren(...data.told.ranks.map(said => el("li", said)));
  $("job-search").hidden = rows.length < 9;
  const body = el("tbody"), top = el("thead");
  const tells = rows.some(row => row[6] !== null);
  top.append(cells("th", ["process", "verdict", ...tells ? ["ended"] : [], "peak", "left behind", "steps"]));
  for (const i of data.told.order) {
    const [name, phrase, peak, left, steps, cls, ended] = rows[i] || [];
    if (name === undefined || !`${name} ${phrase} ${ended || ""}`.toLowerCase().includes(wanted)) continue;
    const r = el("tr", undefined, "pick"), first = el("td"), b = el("button", name);
    r.dataset.process = i;
    b.onclick = () => show(i);
    r.onclick = e => { if (e.target !== b) show(i); };
    first.append(b);
    r.append(first, el("td", phrase + (data.told.apart.includes(i) ? " · differs from the others" : ""), cls), ...tells ? [el("td", ended)] : [], el("td", size(peak)), el("td", left ? size(left) : "-", left ? cls : ""), el("td", number(steps)));
    body.append(r);
  }
  $("processes").classList.toggle("ends", tells);
  $("processes").replaceChildren(top, body);
  mark();
}
// The row of the process that is shown.
function mark() {
  $("processes").querySelectorAll("tbody tr").forEach(r => r.classList.toggle("on", Boolean(lane) && Number(r.dataset.process) === lane.i));
}
// Shows a process: its findings, and its GPU where that is drawn.
function show(i) {
  const at = lanes.findIndex(l => l.i === i);
  if (at >= 0) { $("lane").value = at; lane = lanes[at]; } else lane = { i, p: processes[i], name: data.told.names[i], c: null, d: processes[i].devices[0] || {} };
  begin();
}
