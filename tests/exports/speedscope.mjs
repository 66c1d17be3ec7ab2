// Has speedscope's own importer read files, and prints what it understood, as JSON.
//
//   node speedscope.mjs FOLDER FILE...     FOLDER: dist/release of speedscope's npm package
//
// The package is a web page: its script is run with a page that accepts everything and shows nothing.
import { readFileSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import vm from "node:vm";

const [folder, ...files] = process.argv.slice(2);
const name = readdirSync(folder).find((n) => /^speedscope-.*\.js$/.test(n));
const script = readFileSync(join(folder, name), "utf8");
// The page hands a file that was given on its command line to this function.
const importer = /loadFileFromBase64:\(\w+,\w+\)=>\{this\.loadProfile\(\(\)=>(\w+)\(/.exec(script)?.[1];
const start = script.indexOf("(()=>{") + "(()=>{".length;
if (!importer || start < 10) throw new Error("this speedscope is built in another way");
const opened = `${script.slice(0, start)}globalThis.importFile=(name,text)=>${importer}(name,text);${script.slice(start)}`;

const anything = () =>
  new Proxy(function () {}, {
    get: (_, key) => (key === Symbol.toPrimitive ? () => "" : key === "length" ? 0 : key === Symbol.iterator ? undefined : anything()),
    apply: () => anything(),
    construct: () => anything(),
    set: () => true,
    has: () => false,
  });
const { TextDecoder, TextEncoder, console: ours, setTimeout, clearTimeout, atob, btoa, performance, URL } = globalThis;
const page = { TextDecoder, TextEncoder, setTimeout, clearTimeout, atob, btoa, performance, URL, Buffer: undefined };
const quiet = { ...ours, log() {}, time() {}, timeEnd() {} };
const location = { hash: "", href: "file:///", protocol: "file:", search: "" };
const { DecompressionStream, ReadableStream, Blob, Response, Uint8Array: Bytes } = globalThis;
Object.assign(page, { DecompressionStream, ReadableStream, Blob, Response, console: quiet, location });
page.window = page.self = page.globalThis = page;
page.document = anything();
page.navigator = { userAgent: "", platform: "" };
for (const n of ["FileReader", "matchMedia", "addEventListener", "removeEventListener", "requestAnimationFrame", "FontFace", "localStorage"]) page[n] = anything();
page.HTMLElement = page.Element = page.Node = class {};
vm.createContext(page);
try {
  vm.runInContext(opened, page);
} catch (e) {
  // What draws comes last, and may not find what it draws on.
  if (!page.importFile) throw e;
}

const told = [];
for (const file of files) {
  const group = await page.importFile(basename(file), readFileSync(file).toString("base64"));
  if (!group) throw new Error(`${file}: Unrecognized format! See documentation about supported formats.`);
  const profiles = group.profiles.map((p) => {
    const frames = [];
    p.forEachFrame((f) => frames.push({ name: f.name, file: f.file, line: f.line, self: f.getSelfWeight(), total: f.getTotalWeight() }));
    return { name: p.getName(), total: p.getTotalWeight(), weight: p.formatValue(2 ** 20), frames };
  });
  told.push({ name: group.name, profiles });
}
console.log(JSON.stringify(told));
