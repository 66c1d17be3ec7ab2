// Loads a snapshot into memory_viz in a headless Chromium, opens every view, and fails on any error the page reports.
//
//   node look.mjs --viz MemoryViz.js --process process_alloc_data.js --d3 node_modules/d3/dist/d3.js \
//                 --puppeteer node_modules/puppeteer-core --chromium /usr/bin/chromium --out DIR SNAPSHOT...
//
// With each view: how long it took until it was drawn (seconds; in brackets those of the processors), and JavaScript's heap.
// --limit SECONDS is the longest that a view may take, --walk N how many events of the history are chosen.
//
// The two scripts are PyTorch's own (torch/utils/viz/ of its repository); nothing here changes them but the addresses
// they import d3 from. The page is served on the loopback interface and nothing leaves the machine.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { mkdtempSync, mkdirSync, readFileSync, readdirSync, rmSync, existsSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { tmpdir } from 'node:os';
import { runInNewContext } from 'node:vm';

const options = { chromium: '/usr/bin/chromium', out: '.', limit: '120', walk: '200' };
const snapshots = [];
const rest = process.argv.slice(2);
while (rest.length > 0) {
  const word = rest.shift();
  if (word.startsWith('--')) options[word.slice(2)] = rest.shift();
  else snapshots.push(word);
}
for (const needed of ['viz', 'd3', 'puppeteer']) {
  if (!options[needed]) {
    console.error(`look.mjs: --${needed} is missing; see the head of this file`);
    process.exit(2);
  }
}
if (snapshots.length === 0) {
  console.error('look.mjs: no snapshot given');
  process.exit(2);
}
mkdirSync(options.out, { recursive: true });

const require = createRequire(import.meta.url);
const loaded = require(resolve(options.puppeteer));
const puppeteer = loaded.default ?? loaded;
// Only its names are wanted here: run as a plain script, since its package calls every file a module.
const { d3 } = runInNewContext(`${readFileSync(options.d3, 'utf8')}; globalThis`, {});

// memory_viz imports d3 from a CDN as ES modules; the npm package holds one script that sets `globalThis.d3`.
const bridge = 'const d = globalThis.d3;\n' +
  Object.keys(d3).filter(k => /^[A-Za-z_$][\w$]*$/.test(k) && k !== 'default').map(k => `export const ${k} = d.${k};`).join('\n');
const rewritten = path => readFileSync(path, 'utf8').replace(/(["'])https:\/\/[^"']*\1/g, '"/d3.mjs"');
const page = '<!DOCTYPE html><html><head><meta charset="utf-8"><link rel="icon" href="data:,"></head><body>' +
  '<script src="/d3.js"></script><script type="module" src="/MemoryViz.js"></script></body></html>';
const files = {
  '/': ['text/html', () => page],
  '/d3.js': ['text/javascript', () => readFileSync(options.d3)],
  '/d3.mjs': ['text/javascript', () => bridge],
  '/MemoryViz.js': ['text/javascript', () => rewritten(options.viz)],
  '/process_alloc_data.js': ['text/javascript', () => (options.process ? rewritten(options.process) : '')],
};
const server = createServer((request, response) => {
  const file = files[request.url];
  if (!file) {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, { 'content-type': file[0] }).end(file[1]());
});
await new Promise(done => server.listen(0, '127.0.0.1', done));
const address = `http://127.0.0.1:${server.address().port}/`;

const profile = mkdtempSync(join(tmpdir(), 'strandline-viz-'));
const browser = await puppeteer.launch({
  executablePath: options.chromium,
  headless: true,
  protocolTimeout: 1000 * options.limit,
  userDataDir: profile,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', '--window-size=1600,1000'],
});

const settle = p => p.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 150)))));
const slug = s => s.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '');
let failures = 0;

// Seconds of all of the browser's processes, its renderers among them; also of those that have ended.
const spent = new Map();
function processors() {
  const stat = pid => {
    try {
      const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
      const words = text.slice(text.lastIndexOf(')') + 2).split(' ');
      return { parent: Number(words[1]), ticks: Number(words[11]) + Number(words[12]) };
    } catch {
      return { parent: 0, ticks: 0 };
    }
  };
  const all = new Map(readdirSync('/proc').filter(n => /^\d+$/.test(n)).map(n => [Number(n), stat(n)]));
  const ours = pid => pid === browser.process().pid || (all.has(pid) && ours(all.get(pid).parent));
  all.forEach((s, pid) => ours(pid) && spent.set(pid, s.ticks));
  return [...spent.values()].reduce((sum, ticks) => sum + ticks, 0) / 100;
}

// What it takes to do something and to draw what comes of it.
async function measured(p, act) {
  const [wall, cpu] = [performance.now(), processors()];
  await act();
  await settle(p);
  const { JSHeapUsedSize: heap } = await p.metrics();
  return { s: (performance.now() - wall) / 1000, cpu: processors() - cpu, heap: heap / 2 ** 20 };
}
const cost = m => `${m.s.toFixed(1)} s (${m.cpu.toFixed(1)}), heap ${m.heap.toFixed(0)} MiB`;

async function look(snapshot) {
  const faults = [];
  let view = 'loading';
  const p = await browser.newPage();
  await p.setViewport({ width: 1600, height: 1000 });
  p.on('pageerror', e => faults.push(`${view}: ${e.message ?? e}`));
  p.on('console', m => m.type() === 'error' && faults.push(`${view}: ${m.text()}`));
  p.on('requestfailed', r => faults.push(`${view}: ${r.url()} did not load`));
  await p.goto(address);
  await p.waitForSelector('input[type=file]', { timeout: 20_000 }).catch(e => {
    throw new Error([...faults, e.message].join('; '));
  });
  const loading = await measured(p, async () => {
    await (await p.$('input[type=file]')).uploadFile(resolve(snapshot));
    await p.waitForFunction(() => document.querySelectorAll('select')[2].options.length > 0, { timeout: 1000 * options.limit })
      .catch(() => faults.push(`loading: no device to choose after ${options.limit} s`));
  });
  const views = await p.evaluate(() => Array.from(document.querySelectorAll('select')[1].options, o => o.text));
  const gpus = await p.evaluate(() => Array.from(document.querySelectorAll('select')[2].options, o => o.text));
  const counts = {};
  for (const gpu of gpus) {
    for (const name of views) {
      view = gpus.length > 1 ? `${name}, GPU ${gpu}` : name;
      const took = await measured(p, () => p.evaluate((g, v) => {
        const [, views, gpus] = document.querySelectorAll('select');
        gpus.value = g;
        views.value = v;
        views.dispatchEvent(new Event('change'));
      }, gpu, name));
      counts[view] = await p.evaluate(() => {
        const shown = Array.from(document.body.querySelectorAll(':scope > div')).filter(d => d.style.display === 'flex');
        const n = s => shown.reduce((sum, d) => sum + d.querySelectorAll(s).length, 0);
        return { polygons: n('svg polygon'), rects: n('svg rect'), lines: n('pre'), text: shown.map(d => d.innerText).join(' ').length };
      });
      const shown = Object.values(counts[view]).some(c => c > 0);
      counts[view].took = took;
      if (!shown) faults.push(`${view}: nothing is drawn`);
      await p.screenshot({ path: join(options.out, `${basename(snapshot, '.pickle')}.${slug(view)}.png`) });
      if (name === 'Allocator State History') await walk(p, () => view, faults);
    }
  }
  await p.close();
  console.log(`${basename(snapshot)}: ${faults.length === 0 ? 'no error' : 'ERRORS'}; loaded in ${cost(loading)}`);
  for (const [name, c] of Object.entries(counts)) {
    console.log(`  ${name}: ${c.polygons} polygons, ${c.rects} rectangles, ${c.lines} lines; ${cost(c.took)}`);
  }
  for (const f of new Set(faults)) console.log(`  ${f}`);
  failures += faults.length;
}

// Draws the state at events all over the history: each is replayed backwards from the end, which is what breaks first.
async function walk(p, view, faults) {
  const points = await p.evaluate(most => {
    const shown = Array.from(document.body.querySelectorAll(':scope > div')).find(d => d.style.display === 'flex');
    const events = Array.from(shown?.querySelectorAll('div > div pre') ?? []);
    const n = events.length;
    const every = Math.max(1, Math.ceil(n / most));
    let clicked = 0;
    for (let i = 0; i < n; i += every) {
      events[i].dispatchEvent(new MouseEvent('mousedown', { bubbles: true }));
      clicked += 1;
    }
    return clicked;
  }, Number(options.walk)).catch(e => {
    faults.push(`${view()}: ${e.message}`);
    return 0;
  });
  if (points === 0) faults.push(`${view()}: no event could be chosen`);
}

try {
  for (const s of snapshots) {
    if (!existsSync(s)) throw new Error(`${s} does not exist`);
    await look(s);
  }
} finally {
  await browser.close();
  server.close();
  rmSync(profile, { recursive: true, force: true });
}
process.exit(failures === 0 ? 0 : 1);
