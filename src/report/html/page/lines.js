// All lines that allocate, to be sorted and searched. Rows are made once for what is shown.
let order = ["bytes", -1], made = [null, new Map()];
function lines() {
  const heads = [["site", "line"], ["stream", "stream"], ["bytes", `held ${after()}`], ["blocks", "blocks"], ["allocs", "total allocations"], ["frees", "total frees"]];
  const wanted = $("lines-search").value.toLowerCase(), top = el("tr"), leak = grown();
  for (const [k, n] of heads) {
    const h = el("th"), b = el("button", n + (order[0] === k ? (order[1] < 0 ? " ▾" : " ▴") : "")), mine = order[0] === k;
    h.setAttribute("aria-sort", mine ? (order[1] < 0 ? "descending" : "ascending") : "none");
    b.onclick = () => { order = [k, mine ? -order[1] : k === "site" || k === "stream" ? 1 : -1]; lines(); };
    h.append(b); top.append(h);
  }
  const found = lane.c.table.filter(r => `${r.site} ${r.stream}`.toLowerCase().includes(wanted));
  const sorted = found.sort((a, b) => (a[order[0]] < b[order[0]] ? -1 : a[order[0]] > b[order[0]] ? 1 : 0) * order[1]);
  const body = el("tbody"), header = el("thead");
  header.append(top);
  const row = r => {
    const row = el("tr", undefined, r.leak ? (leak && leak.certainty === "leak" ? "bad" : "doubt") : "");
    heads.forEach(([k]) => row.append(el("td", k === "bytes" ? size(r[k]) : typeof r[k] === "number" ? number(r[k]) : r[k])));
    return row;
  };
  if (made[0] !== lane) made = [lane, new Map(lane.c.table.map(r => [r, row(r)]))];
  body.append(...sorted.map(r => made[1].get(r)));
  $("lines").replaceChildren(header, body);
}
