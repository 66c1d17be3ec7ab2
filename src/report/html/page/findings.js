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
  const ended = f.withdrawn_step !== null, headed = f.headline || f.kind.replaceAll("-", " ");
  const headline = ended ? `${headed.replace(/\bgrows\b/, "grew")} until ${unit()} ${number(f.withdrawn_step)}` : headed;
  title.append(el("span", ended ? "ENDED" : f.suppressed_by ? "SUPPRESSED" : f.certainty.replace("_", " ").toUpperCase(), "tag " + cls), ` ${f.bound && f.certainty === "bounded" ? `memory grows until ${f.bound.source} is full` : headline}`);
  box.append(title, list);
  const k = f.kept_at, y = site.your_line, a = site.frames[0];
  if (k) say("kept at", el("code", k.source), " ", linked(k, near(k))).append(copyable(place(k), "this file and line"));
  if (f.modified_source) say("kept at", `unknown: ${near({ file: f.modified_source })} was modified after the run began, so it was not searched`);
  if (a) say("allocated at", linked(a, near(a)), ` ${called(a)}`).append(copyable(place(a), "this file and line"));
  if (y && !(a && place(a) === place(y))) say("your line", linked(y, near(y)), ` ${called(y)}`).append(copyable(place(y), "your line"));
  if (ended) {
    const life = f.certainty === "in_use" && f.evidence.find(e => e.what.startsWith("longest lifetime"));
    say("because", `it grew from ${unit()} ${number(f.first_step)} and had stopped growing by ${unit()} ${number(f.withdrawn_step)}${life ? `; all of it was freed, each block after at most ${plural(life.value, noun(f.grain))}` : ""}`);
    return box;
  }
  // What the explanation says is not said twice.
  const held = size(f.bytes_now), told = !grows && (f.explain || "").includes(held.replace("\u00a0", " "));
  const sizes = [grows || f.bytes_per_step > 0 ? f.rate : "", told ? "" : `${held} now`].filter(Boolean);
  if (sizes.length) say("size", sizes.join(", "));
  const now = f.current_bytes_per_step;
  if (grows && Math.abs(now - f.bytes_per_step) > .2 * Math.abs(f.bytes_per_step)) say("current", `${size(Math.round(now))} a ${noun(f.grain)}; ${size(Math.round(f.bytes_per_step))} is the average since the growth began`);
  const full = (lane.p.devices.find(d => d.index === f.device) || {}).oom;
  const when = ahead(lane.p, f);
  if (grows && !full && when) say(when.label, when.said);
  if (f.bound) say("ends by itself", f.bound.source + (f.bound.bytes === null ? "" : `, ${size(f.bound.bytes)} then`));
  const h = f.held_by;
  if (h.holders.length || h.reason && grows && !f.kept_at) say("held by", h.holders.length ? h.words.join("; ") : "unknown: " + h.reason);
  if (f.explain) say("because", f.explain);
  if (f.suppressed_by) say("suppressed", `by ${f.suppressed_by}: not counted`);
  if (f.fix) say("fix", el("span", `known as ${f.fix.known}: ${f.fix.text}`, "good"));
  else if (f.remedy && (grows || f.certainty === "note" && !f.suppressed_by)) say("try", f.remedy);
  if (site.frames.length) {
    const more = el("details");
    const stack = el("pre");
    site.frames.forEach((x, i) => stack.append(i ? "\n" : "", linked(x, place(x)), ` ${x.function}`));
    more.append(el("summary", "full stack"), stack);
    f.sites.forEach(s => { const x = s.your_line || s.frames[0]; if (x) more.append(el("div", `${(s.share * 100).toFixed(1)} %  ${near(x)} ${called(x)}`, "soft")); });
    box.append(more);
  }
  return box;
}
// Its blocks are replaced by larger ones.
const remade = f => f.evidence.some(e => e.what.startsWith("times it was allocated again"));
// When the GPU is full, as the report has it: a label, how far in a few words and in a sentence; of a job that has ended, what it
// would have taken.
function ahead(p, f) {
  const exact = f.steps_to_oom, t = f.seconds_to_oom, runs = p.ended === "running";
  if (!exact || exact.mid === null) return null;
  // A GPU is full once: of several findings the one that fills it first tells when.
  const sooner = g => g !== f && counts(g) && g.device === f.device && g.grain === f.grain && g.steps_to_oom && g.steps_to_oom.mid !== null
    && (g.steps_to_oom.mid < exact.mid || g.steps_to_oom.mid === exact.mid && g.bytes_per_step > f.bytes_per_step);
  if (p.findings.some(sooner)) return null;
  const [label, more, rate] = runs ? ["full in", "", ""] : ["full after", "further ", f.with_others ? p.findings.some(g => g !== f && counts(g) && g.device === f.device && g.grain === f.grain) ? " at the combined rate of all growth" : remade(f) ? " at this rate, as the old and the new block must both fit" : "; this counts reserved memory, which grows faster than allocated memory" : " at this rate"];
  // Three figures: nobody knows more.
  const rounded = n => n === null ? n : Number(n.toPrecision(3));
  const word = noun(f.grain), s = word === "second" ? t && t.mid !== null ? t : exact : { low: rounded(exact.low), mid: rounded(exact.mid), high: rounded(exact.high) }, left = t && t.mid !== null && (runs || word !== "second") ? t.mid : null;
  const told = (size, said, range) => ({ label, size, said: said + (range || "") + rate, range: range || "" });
  if (s.low > 1e4 && (left === null || left > 7 * 86400)) return told(`> ${plural(1e4, word)}`, `more than ${plural(1e4, more + word)}`);
  if (s.mid === 0) return told(`< 1 ${word}`, `less than one ${more}${word}`);
  const far = n => word === "second" ? time(n) : plural(n, word);
  const or = left === null || runs ? "" : `, in ${time(left)}`;
  const to = word === "second" ? time(s.high) : or ? plural(s.high, word) : number(s.high);
  const range = (s.high === null ? "" : ` (${word === "second" ? time(s.low) : number(s.low)} to ${to})`) + (left === null || !runs ? "" : `, ${time(left)} from now`);
  return told(far(s.mid) + or, `about ${word === "second" ? time(s.mid) : plural(s.mid, more + word)}${or}`, range);
}
