// Opens pages of `strandline report --html` in a headless Chromium at three widths, dark and light; presses everything that can be pressed;
// asks axe-core; and fails on any error, on anything that is not drawn, and on any address that a page asks for.
//
//   node page.mjs DIR OUT [--leak] [--timed] PAGE.html...      --leak: there must be growth on it, and a forecast
//   --timed: nothing that is pressed may take more than 50 ms, and the page is drawn and answers after 2 s (on a machine with nothing else to do)
//
// DIR/node_modules: npm install puppeteer-core axe-core. CHROMIUM is the browser; without it, the one of npm's @sparticuz/chromium in
// DIR, which brings its libraries and fonts and is unpacked there. Screenshots go to OUT. A page without data, as `strandline diff`
// makes them, has nothing to press.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const words = process.argv.slice(2), leak = words.includes('--leak'), timed = words.includes('--timed');
const [dir, out, ...pages] = words.filter(w => !w.startsWith('--'));
if (pages.length === 0) {
  console.error('page.mjs: DIR OUT PAGE.html...');
  process.exit(2);
}
const require = createRequire(join(resolve(dir), 'package.json'));
async function chromium() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  process.env.TMPDIR = resolve(dir);
  // Where it believes to run decides whether it brings its own libraries.
  process.env.AWS_EXECUTION_ENV ??= 'AWS_Lambda_nodejs20.x';
  // Its list of folders with fonts has none of those that it was unpacked in; without any font the browser ends itself.
  const fonts = join(resolve(dir), 'fonts.conf');
  writeFileSync(fonts, `<fontconfig><dir>${join(resolve(dir), 'fonts')}</dir><cachedir>${join(resolve(dir), 'fonts-cache')}</cachedir></fontconfig>`);
  process.env.FONTCONFIG_FILE ??= fonts;
  return (await import(pathToFileURL(require.resolve('@sparticuz/chromium')).href)).default.executablePath();
}
const puppeteer = require('puppeteer-core'), axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
mkdirSync(out, { recursive: true });

// Runs in the page: everything pressed, what is wrong with it, and how long the slowest took.
function pressed(mustLeak, mostMs) {
  const wrong = [], $ = id => document.getElementById(id), all = s => [...document.querySelectorAll(s)];
  // Places are links if the page was asked for with --source-links, whatever a file is called, and nothing else is one.
  const links = all('a[href]'), asked = $('data') && JSON.parse($('data').textContent).told?.links;
  if (links.some(a => !asked || !/^(vscode:\/\/file|https:\/\/github\.com\/owner\/name\/blob\/[0-9a-f]{40})\/[^<>"\s]*((:|#L)\d+)?$/.test(a.href))) wrong.push('a link leads elsewhere: ' + links.map(a => a.href));
  if (asked && !links.length) wrong.push('no place is a link');
  let slowest = 0;
  const timed = (what, act) => { const t = performance.now(); act(); document.body.getBoundingClientRect(); const ms = performance.now() - t; if (ms > slowest) slowest = ms; if (ms > mostMs) wrong.push(`${what} took ${ms.toFixed(0)} ms`); };
  const wide = () => { const more = document.documentElement.scrollWidth - innerWidth; if (more > 0) wrong.push(`${more} pixels wider than the window`); };
  wide();
  if (!$('data')) return { wrong, slowest };
  const data = JSON.parse($('data').textContent), drawn = !$('drawn').hidden;
  if (document.body.dataset.drawn !== '1') wrong.push('the page did not come to its end');
  if (!$('verdict').textContent.startsWith(data.told.phrase)) wrong.push('the verdict is not the first word');
  const inked = id => { const c = $(id), v = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; return v.some(n => n > 0); };
  if (drawn) {
    for (const b of all('#by button')) timed(b.textContent, () => b.click());
    for (const id of ['steps', 'within', 'ages']) if (!inked(id)) wrong.push('nothing is drawn in ' + id);
    const plot = $('steps'), r = plot.getBoundingClientRect(), said = new Set();
    const at = (type, x) => plot.dispatchEvent(new PointerEvent(type, { bubbles: true, button: 0, pointerId: 1, clientX: r.left + x, clientY: r.top + 50 }));
    plot.setPointerCapture = () => {};
    for (let i = 0; i < 20; i++) {
      const x = 80 + (r.width - 95) * (i + .5) / 20;
      timed('hover', () => at('pointermove', x));
      if ($('tip').hidden || !/step|second/.test($('tip').textContent)) wrong.push('the hover says nothing');
      timed('click', () => { at('pointerdown', x); at('pointerup', x); });
      said.add($('moment').textContent);
    }
    const steps = lane.c.steps.length;
    if (said.size < 2 && steps > 2) wrong.push('clicks choose no step');
    if (!/^GPU memory at the end of (step|second) /.test($('filled-title').textContent)) wrong.push('a click tells no anatomy');
    if (steps > 20) {
      timed('zoom', () => { at('pointerdown', r.width * .4); at('pointermove', r.width * .5); at('pointerup', r.width * .6); });
      if ($('reset').hidden) wrong.push('a drag does not zoom');
      timed('reset', () => $('reset').click());
    }
    for (const key of ['ArrowLeft', 'ArrowRight', '+', '-', 'Escape', 'Home', 'End']) timed(key, () => plot.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true })));
    for (const b of all('#which button')) { timed(b.textContent, () => b.click()); if (all('#flame button').length < 2) wrong.push('no flame graph ' + b.textContent); }
    timed('fold', () => $('fold').click());
    const frame = all('#flame button')[1];
    if (frame) { timed('a frame', () => frame.click()); if (!/, [0-9.]+ %$/.test($('frame').textContent)) wrong.push('a frame says nothing'); }
    timed('whole graph', () => $('whole').click());
    $('flame-search').value = 'linear'; timed('search of frames', () => $('flame-search').oninput()); $('flame-search').value = ''; $('flame-search').oninput();
    const rows = all('#lines tbody tr').length;
    if (rows < 1) wrong.push('the table is empty');
    for (let i = 0; i < 6; i++) timed('sort', () => all('#lines th button')[i].click());
    $('lines-search').value = 'no such line'; timed('search of lines', () => $('lines-search').oninput());
    if (all('#lines tbody tr').length !== 0) wrong.push('the search finds what is not there');
    $('lines-search').value = ''; $('lines-search').oninput();
    for (const [i, n] of [[4, 'allocations'], [5, 'freed']]) {
      all('#lines th button')[i].click();
      const v = all(`#lines tbody td:nth-child(${i + 1})`).map(e => Number(e.textContent.replaceAll(',', '')));
      if (v.some((x, k) => k > 0 && x > v[k - 1])) wrong.push('the table is not sorted by ' + n);
    }
    if (all('#blocks tbody tr').length === 0 && lane.c.end && lane.c.end.blocks.length) wrong.push('no blocks are listed');
  }
  for (const b of all('#processes button')) timed('a process', () => b.click());
  all('#processes button')[0]?.click();
  const boxes = all('.finding'), told = lane ? lane.p.findings : [];
  if (boxes.length !== told.length) wrong.push(`${boxes.length} of ${told.length} findings are shown`);
  if (mustLeak) {
    const text = boxes.map(b => b.textContent).join(' ');
    if (!/allocated at|kept at/.test(text) || !/full (in|after)/.test(text)) wrong.push('the growth is not told');
    if (!document.querySelector('#lines tr.bad, #lines tr.doubt')) wrong.push('the table does not mark the line that grows');
  }
  timed('theme', () => $('theme').click());
  $('theme').click();
  wide();
  return { wrong, slowest };
}

const browser = await puppeteer.launch({ executablePath: await chromium(), headless: 'shell', args: ['--no-sandbox', '--disable-gpu'] });
let failed = 0;
// Milliseconds to the first paint with contents; the browser may tell it later than it was.
const painted = page => page.evaluate(() => new Promise((done, fail) => {
  new PerformanceObserver(list => list.getEntriesByName('first-contentful-paint').forEach(e => done(e.startTime))).observe({ type: 'paint', buffered: true });
  setTimeout(() => fail(new Error('nothing was painted within 10 s')), 10000);
}));
// How long the browser takes for a page of one word, on this machine now.
async function bare() {
  const page = await browser.newPage();
  writeFileSync(join(out, 'word.html'), '<!doctype html><title>word</title><p>word');
  await page.goto(pathToFileURL(resolve(join(out, 'word.html'))).href);
  const at = await painted(page);
  await page.close();
  return at;
}
for (const file of pages) {
  const wrong = new Set(), name = basename(file, '.html');
  let slowest = 0, paint = 0, usable = 0;
  for (const width of [390, 1400, 2560]) for (const theme of ['light', 'dark']) {
    const page = await browser.newPage();
    page.on('pageerror', e => wrong.add(String(e)));
    page.on('console', m => { if (m.type() === 'error') wrong.add(m.text()); });
    page.on('request', r => { if (!r.url().startsWith('file:') && !r.url().startsWith('data:')) wrong.add('asks for ' + r.url()); });
    page.on('dialog', d => { wrong.add('a dialog: ' + d.message()); d.dismiss(); });
    await page.setViewport({ width, height: 1000 });
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: theme }]);
    await page.goto(pathToFileURL(resolve(file)).href);
    paint = Math.max(paint, await painted(page));
    usable = Math.max(usable, paint, await page.evaluate(() => performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd));
    if (timed && usable > 2000) wrong.add(`usable only after ${usable.toFixed(0)} ms`);
    await page.screenshot({ path: join(out, `${name}-${width}-${theme}.png`), fullPage: true });
    const told = await page.evaluate(pressed, leak, timed ? 50 : Number.MAX_VALUE);
    told.wrong.forEach(w => wrong.add(`${width} ${theme}: ${w}`));
    slowest = Math.max(slowest, told.slowest);
    // The page's policy forbids scripts of others: axe is put into a world of its own.
    const session = await page.createCDPSession(), tree = await session.send('Page.getFrameTree');
    const { executionContextId } = await session.send('Page.createIsolatedWorld', { frameId: tree.frameTree.frame.id });
    await session.send('Runtime.evaluate', { expression: axe, contextId: executionContextId });
    const asked = await session.send('Runtime.evaluate', { expression: 'axe.run().then(r => JSON.stringify(r.violations.map(v => v.id + ": " + v.nodes.slice(0, 3).map(n => n.target + " " + n.failureSummary.split("\\n")[1]).join("; "))))', contextId: executionContextId, awaitPromise: true, returnByValue: true });
    JSON.parse(asked.result.value).forEach(v => wrong.add(`axe, ${width} ${theme}: ${v}`));
    await page.close();
  }
  if (wrong.size) { failed++; console.error(`${file}:\n  ${[...wrong].join('\n  ')}`); }
  console.log(`${file}: ${(readFileSync(file).length / 1024).toFixed(0)} KiB, first paint at ${paint.toFixed(0)} ms (of one word: ${(await bare()).toFixed(0)} ms), usable at ${usable.toFixed(0)} ms, slowest of what was pressed ${slowest.toFixed(0)} ms`);
}
await browser.close();
process.exit(failed ? 1 : 0);
