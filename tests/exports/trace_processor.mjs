// Perfetto's trace processor as ui.perfetto.dev runs it, asked over stdin and stdout in its own protocol.
//
//   node trace_processor.mjs FOLDER        FOLDER: has engine_bundle.js and trace_processor.wasm
import { readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import vm from "node:vm";

const folder = process.argv[2];
// Without the line of the script: it is all of it.
process.on("uncaughtException", (e) => {
  console.error(String(e?.stack ?? e).split("\n").slice(0, 12).join("\n").slice(0, 2000));
  process.exit(1);
});
const { TextDecoder, TextEncoder, WebAssembly, performance, crypto, URL, setTimeout, clearTimeout, setInterval, clearInterval } = globalThis;
const quiet = { log() {}, warn() {}, error: console.error };
const worker = { TextDecoder, TextEncoder, WebAssembly, performance, crypto, URL, setTimeout, clearTimeout, setInterval, clearInterval, Uint8Array, Error, TypeError, RangeError };
worker.console = quiet;
worker.location = { href: "http://localhost/engine_bundle.js" };
worker.WorkerGlobalScope = class {};
const file = (url) => {
  const bytes = readFileSync(join(folder, String(url).split("/").pop()));
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
};
worker.XMLHttpRequest = class {
  open(_, url) {
    this.url = url;
  }
  send() {
    this.response = file(this.url);
  }
};
worker.fetch = async (url) => ({ ok: true, arrayBuffer: async () => file(url) });
worker.importScripts = () => {};
worker.self = worker.globalThis = worker;
vm.createContext(worker);
vm.runInContext(readFileSync(join(folder, "engine_bundle.js"), "utf8"), worker);

const write = (bytes) => {
  for (let at = 0; at < bytes.length; ) {
    try {
      at += writeSync(1, bytes, at);
    } catch (e) {
      if (e.code !== "EAGAIN") throw e;
    }
  }
};
const port = { postMessage: (bytes) => write(bytes) };
worker.onmessage({ data: port });
// Compiling takes a moment, and the port may not be used before; its first answer says that it is there.
const ready = async (bytes) => {
  for (let left = 600; ; left--) {
    try {
      return port.onmessage({ data: bytes });
    } catch (e) {
      if (left === 0 || !/before runtime initialization|undefined|null/.test(String(e))) throw e;
      await new Promise((done) => setTimeout(done, 100));
    }
  }
};
for await (const chunk of process.stdin) await ready(new Uint8Array(chunk));
