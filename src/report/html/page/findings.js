// What was found in the process that is shown: the line that keeps the memory first.
function findings() {
  const found = lane ? lane.p.findings : [];
  $("found").hidden = !found.length;
  $("found-title").textContent = "What was found" + (processes.length > 1 ? " in " + lane.name : "");
  $("findings").replaceChildren(...found.map(finding));
}
function finding(f) {
  const grows = counts(f), cls = !grows ? "" : f.certainty === "leak" ? "bad" : "doubt";
  const box = el("div", undefined, ("finding " + cls).trim()), list = el("dl"), site = f.sites[0] || { frames: [] };
  const say = (what, ...parts) => { const d = el("dd"); d.append(...parts); list.append(el("dt", what), d); return d; };
  const title = el("h3");
  title.append(el("span", f.certainty.replace("_", " "), "tag " + cls), ` ${f.headline || f.kind.replaceAll("-", " ")}`);
  box.append(title, list);
  const k = f.kept_at, y = site.your_line, a = site.frames[0];
  if (k) say("kept at", el("code", k.source), ` ${place(k)}`).append(copyable(place(k), "the place that keeps it"));
  if (a) say("allocated at", `${place(a)} ${a.function}`).append(copyable(place(a), "the place that allocates"));
  if (y && !(a && place(a) === place(y))) say("your line", `${place(y)} ${y.function}`).append(copyable(place(y), "your line"));
  const per = `${size(Math.round(f.bytes_per_step))} and ${plural(Number(f.blocks_per_step.toFixed(1)), "block")} every ${f.grain}`;
  say("size", [grows || f.bytes_per_step > 0 ? per : "", `${size(f.bytes_now)} now`].filter(Boolean).join(", ") + (f.withdrawn_step === null ? "" : `; ended at step ${f.withdrawn_step}`));
  const ended = (lane.p.devices.find(d => d.index === f.device) || {}).oom;
  const when = ahead(lane.p, f);
  if (grows && !ended && when) say(...when);
  if (f.bound) say("ends by itself", f.bound.source + (f.bound.bytes === null ? "" : `, ${size(f.bound.bytes)} then`));
  const h = f.held_by;
  if (h.holders.length || h.reason) say("held by", h.holders.length ? h.holders.join("; ") : "not known: " + h.reason);
  if (f.explain) say("because", f.explain);
  if (f.suppressed_by) say("suppressed", `by ${f.suppressed_by}: does not count`);
  if (f.fix) say("fix", el("span", `known as ${f.fix.known}: ${f.fix.text}`, "good"));
  else if (f.remedy && (grows || f.certainty === "note" && f.withdrawn_step === null && !f.suppressed_by)) say("try", f.remedy);
  if (site.frames.length) {
    const more = el("details");
    more.append(el("summary", "stack and lines"), el("pre", site.frames.map(x => `${place(x)} ${x.function}`).join("\n")));
    f.sites.forEach(s => { const x = s.your_line || s.frames[0]; if (x) more.append(el("div", `${(s.share * 100).toFixed(1)} %  ${place(x)} ${x.function}`, "soft")); });
    box.append(more);
  }
  return box;
}
// When the GPU is full, as the report has it: a label and how far; of a job that has ended, what it would have taken.
function ahead(p, f) {
  const s = f.steps_to_oom, t = f.seconds_to_oom, runs = p.ended === "running";
  if (!s || s.mid === null) return null;
  const [label, noun, rate] = runs ? ["full in", f.grain, ""] : ["full after", "further " + f.grain, " at this rate"];
  const left = runs && t && t.mid !== null ? t.mid : null;
  if (s.low > 1e4 && (left === null || left > 7 * 86400)) return [label, `more than ${plural(1e4, noun)}${rate}`];
  if (s.mid === 0) return [label, `less than one ${noun}${rate}`];
  const range = s.high === null ? "" : ` (${number(s.low)} to ${number(s.high)})`;
  return [label, `about ${plural(s.mid, noun)}${rate}${range}` + (left === null ? "" : `, ${time(left)} from now`)];
}
