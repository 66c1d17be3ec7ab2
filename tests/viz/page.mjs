// Opens a page of `strandline report --html` in a headless Chromium, presses everything that can be pressed, and fails on any
// error, on anything that is not drawn, and on any address that the page asks for. A screenshot is left beside the page.
//
//   node page.mjs [--chromium /usr/bin/chromium] [--leak] PAGE.html...      --leak: there must be a leak on it, and a forecast
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

let chromium = '/usr/bin/chromium', leak = false;
const pages = [];
const rest = process.argv.slice(2);
while (rest.length > 0) {
  const word = rest.shift();
  if (word === '--chromium') chromium = rest.shift();
  else if (word === '--leak') leak = true;
  else pages.push(word);
}
if (pages.length === 0) {
  console.error('page.mjs: no page given');
  process.exit(2);
}

// Runs before and after the page's own script; what went wrong ends up in the document, which Chromium prints.
const before = `<script>window.wrong = []; window.opened = performance.now(); onerror = m => { wrong.push(m); };
  new PerformanceObserver(l => l.getEntries().forEach(e => wrong.push('asks for ' + e.name))).observe({ type: 'resource', buffered: true });</script>`;
const after = `<script>
  document.body.getBoundingClientRect(); document.documentElement.dataset.load = (performance.now() - opened).toFixed(0);
  const press = e => e.dispatchEvent(new MouseEvent('click', { bubbles: true }));
  try {
    const steps = document.getElementById('steps'), said = new Set();
    for (const b of document.querySelectorAll('#by button, #which button')) {
      press(b);
      for (let i = 0; i < 20; i++) {
        const r = steps.getBoundingClientRect();
        steps.dispatchEvent(new MouseEvent('click', { clientX: r.left + r.width * (i + .5) / 20, clientY: r.top + 50 }));
        said.add(document.getElementById('moment').textContent);
      }
    }
    const one = new MouseEvent('click', { clientX: steps.getBoundingClientRect().left + 300, clientY: steps.getBoundingClientRect().top + 50 });
    const clicked = performance.now(); steps.dispatchEvent(one); document.body.getBoundingClientRect();
    document.documentElement.dataset.click = (performance.now() - clicked).toFixed(0);
    if (!/^What filled it at the end of step /.test(document.getElementById('filled-title').textContent)) wrong.push('a click tells no anatomy');
    if (document.querySelectorAll('#filled tr').length < 1) wrong.push('the anatomy of a step is empty');
    if (said.size < 2 && JSON.parse(document.getElementById('data').textContent).charts[0][0].steps.length > 2) wrong.push('clicks choose no step');
    for (const h of document.querySelectorAll('#lines th')) press(h);
    const frames = document.querySelectorAll('#flame div');
    if (frames.length === 0) wrong.push('no flame graph');
    else press(frames[frames.length - 1]);
    press(document.getElementById('whole'));
    const drawn = steps.getContext('2d').getImageData(0, 0, steps.width, steps.height).data.some(v => v > 0);
    if (!drawn) wrong.push('nothing is drawn over the steps');
    if (document.querySelectorAll('#lines tr').length < 2) wrong.push('the table is empty');
    const points = (id, is) => { const c = document.getElementById(id), v = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;
      for (let i = 0; i < v.length; i += 4) n += is(v[i], v[i + 1], v[i + 2], v[i + 3]); return n; };
    for (const id of ['within', 'ages']) if (points(id, (r, g, b, a) => a > 0) === 0) wrong.push('nothing is drawn in ' + id);
    const texts = s => [...document.querySelectorAll(s)].map(e => e.textContent);
    for (const [i, column] of ['allocations', 'freed'].map(n => [texts('#lines th').findIndex(t => t.startsWith(n)), n])) for (const way of [-1, 1]) {
      press(document.querySelectorAll('#lines th')[i]);
      const v = texts('#lines td:nth-child(' + (i + 1) + ')').map(t => Number(t.replaceAll(',', '')));
      if (v.some((n, k) => k > 0 && (n - v[k - 1]) * way < 0)) wrong.push('the table is not sorted by ' + column);
    }
    for (const kind of document.querySelectorAll('#which button')) { press(kind); if (document.querySelectorAll('#flame div').length < 2) wrong.push('no flame graph ' + kind.textContent); }
    const frame = document.querySelectorAll('#flame div')[1]; press(frame);
    if (!/, [0-9.]+ %$/.test(document.getElementById('frame').textContent)) wrong.push('a frame of the flame graph says nothing');
    press(document.getElementById('whole'));
    for (const id of ['legend', 'held']) if (document.getElementById(id).children.length === 0) wrong.push(id + ' is empty');
    const found = [...document.querySelectorAll('#findings > div')], told = JSON.parse(document.getElementById('data').textContent).report.processes[0].findings;
    if (found.length !== told.length) wrong.push(found.length + ' of ' + told.length + ' findings are shown');
    for (const box of found) {
      press(box.querySelector('summary'));
      if (!box.querySelector('pre').textContent && told.some(f => f.sites.length)) wrong.push('a finding has no stack');
      for (const word of ['because ', 'held by: ']) if (!box.textContent.includes(word)) wrong.push('a finding does not say ' + word);
    }
    if (LEAK) {
      const box = document.querySelector('#findings .leak');
      if (!box || !/your line: .*:[0-9]+ /.test(box.textContent) || !/full in about/.test(box.textContent)) wrong.push('the leak is not told');
      if (points('steps', (r, g, b, a) => a === 255 && r === 198 && g === 40 && b === 40) < 100) wrong.push('the leak, the capacity or the forecast is not drawn');
      if (points('steps', (r, g, b, a) => a > 20 && a < 80 && r > 150 && g < 90 && b < 90) < 100) wrong.push('the cone of the forecast is not drawn');
      if (!document.querySelector('#lines tr.bad')) wrong.push('the table does not mark the line that leaks');
    }
    const began = performance.now(); all();
    document.documentElement.dataset.ms = (performance.now() - began).toFixed(0);
  } catch (e) { wrong.push(String(e.stack)); }
  setTimeout(() => { document.documentElement.dataset.wrong = JSON.stringify(wrong); }, 200);</script>`;

const folder = mkdtempSync(join(tmpdir(), 'page-'));
const run = words => spawnSync(chromium, ['--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars',
  `--user-data-dir=${join(folder, 'profile')}`, '--window-size=1300,1900', '--virtual-time-budget=5000', ...words], { encoding: 'utf8', maxBuffer: 1 << 28 });
let failed = 0;
for (const page of pages) {
  const text = readFileSync(page, 'utf8');
  const pressed = join(folder, 'pressed.html');
  writeFileSync(pressed, text.replace('<head>', `<head>${before}`).replace('</body>', `${after.replace('LEAK', leak)}</body>`));
  const { stdout, stderr, status } = run(['--dump-dom', pathToFileURL(pressed).href]);
  const tag = stdout.slice(0, stdout.indexOf('>', stdout.indexOf('<html')));
  const told = name => (new RegExp(`data-${name}="([^"]*)"`).exec(tag) || [])[1] || '?';
  const wrong = /data-wrong="([^"]*)"/.exec(tag);
  run([`--screenshot=${resolve(page).replace(/\.html$/, '')}.png`, pathToFileURL(resolve(page)).href]);
  if (status !== 0 || !wrong || wrong[1] !== '[]') {
    failed++;
    console.error(`${page}: ${wrong ? wrong[1] : `the page did not come to its end\n${stderr}`}`);
  } else {
    console.log(`${page}: ${(text.length / 1024).toFixed(0)} KiB, loaded in ${told('load')} ms, drawn anew in ${told('ms')} ms, a click in ${told('click')} ms`);
  }
}
rmSync(folder, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
