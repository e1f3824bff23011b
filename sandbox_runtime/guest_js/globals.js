// What scripts expect of an engine's surroundings: console, timers, encodings, crypto.random, structuredClone.

// The script's own lines of a stack. The last one is the wrapper around the script, and the first line's columns are not its own.
const frames = (stack) => `${stack ?? ""}`.split("\n").filter((line) => LINE.test(line) && !line.includes("<eval>"))
  .map((line) => line.replace(/(script\.js:\d+):\d+/, "$1").replace(/<anonymous> \((.*)\)/, "$1"));
const nameOfError = (error) => (error instanceof ToolError ? "" : `${error.name ?? "Error"}: `);

// A value in one line, like JSON, for people and models.
const show = (value, depth = 0, above = []) => {
  const advice = (typeof value === "object" && value !== null) || typeof value === "function" ? getAdvice(advices, value) : undefined;
  if (value instanceof Call || (advice && value instanceof Promise)) return `<${advice}>`;
  if (typeof value === "string") return stringify(value);
  if (typeof value === "function") return advice ? `<async function ${value.name}>` : `<function ${value.name || "without a name"}>`;
  if (typeof value !== "object" || value === null) return String(value);
  if (above.includes(value)) return "<cycle>";
  if (depth > 20) return "...";
  const inside = (each) => show(each, depth + 1, [...above, value]);
  const list = (items) => `[${arrayFrom(items, inside).join(",")}]`;
  const fields = (entries) => `{${entries.map(([key, each]) => `${typeof key === "string" ? stringify(key) : inside(key)}:${inside(each)}`).join(",")}}`;
  if (value instanceof Error) return `${nameOfError(value)}${value.message}${lineIn(value.stack) ? ` (script.js:${lineIn(value.stack)})` : ""}`;
  if (isArray(value)) return list(value);
  const kind = kindOf(value), prefix = kind === "Object" || kind === "object" ? "" : `${kind} `;
  if (value instanceof Promise) return "<a promise, not awaited>";
  if (value instanceof Map) return prefix + fields([...value]);
  if (value instanceof Set || value instanceof TypedArray) return prefix + list(value);
  if (value instanceof Date) return isNaN(value) ? "Invalid Date" : value.toISOString();
  if (value instanceof RegExp || value instanceof URLSearchParams) return String(value);
  return prefix + fields(Object.entries(value));
};
const shown = (value) => {
  if (typeof value === "string") return value;
  try {
    return show(value);
  } catch {
    return "<a value that cannot be shown>"; // even its kind may fail
  }
};
const formatted = (values) => {
  if (typeof values[0] !== "string" || values.length < 2 || !values[0].includes("%")) return values.map(shown).join(" ");
  const rest = values.slice(1);
  const text = values[0].replace(/%([sdifoOjc%])/g, (all, kind) => {
    if (kind === "%") return "%";
    if (!rest.length) return all;
    const value = rest.shift();
    return kind === "c" ? "" : kind === "d" || kind === "f" ? `${Number(value)}` : kind === "i" ? `${Math.trunc(Number(value))}` : shown(value);
  });
  return [text, ...rest.map(shown)].join(" ");
};
const say = (...values) => write(`${formatted(values)}\n`);
const ignore = () => {};
const console = {
  log: say, info: say, warn: say, error: say, debug: say, trace: say, group: say,
  dir: (value) => say(value),
  table: (rows) => { for (const row of isArray(rows) ? rows : Object.entries(rows ?? {})) say(row); },
  assert: (claim, ...values) => { if (!claim) say("Assertion failed:", ...values); },
  groupEnd: ignore, time: ignore, timeEnd: ignore, timeLog: ignore, count: ignore,
};

// Timers, in the order in which they fire.
let timers = [], lastTimer = 0;
const addTimer = (callback, ms, values, repeat) => {
  if (typeof callback !== "function") throw new TypeError("a timer expects a function");
  const delay = Math.min(Math.max(Number(ms) || 0, repeat ? 1 : 0), 2 ** 31 - 1);
  schedule({ id: ++lastTimer, at: host.monotonic() + delay, delay, repeat, run: () => callback(...values) });
  return lastTimer;
};
const schedule = (timer) => {
  let at = timers.length;
  while (at > 0 && timers[at - 1].at > timer.at) at--;
  timers.splice(at, 0, timer);
};
const clearTimer = (id) => { timers = timers.filter((timer) => timer.id !== id); };
const runTimer = () => {
  const timer = timers.shift();
  if (timer.repeat) schedule({ ...timer, at: host.monotonic() + timer.delay });
  try { timer.run(); } catch (error) { uncaught(error); }
};

// Errors that nothing handled are printed at the end of the run, or at once if no promise has them.
let rejections = new Map();
const uncaught = (error) => write(`Uncaught ${shown(error)}\n`);

class URLSearchParams {
  #pairs = [];
  constructor(given = "") {
    if (typeof given === "string") {
      const bytes = (escapes) => Uint8Array.from(escapes.slice(1).split("%"), (hex) => Number(`0x${hex}`)).buffer;
      const text = (part) => part.replaceAll("+", " ").replace(/(?:%[0-9a-f]{2})+/gi, (escapes) => wellFormed(host.decode(bytes(escapes))));
      for (const part of given.replace(/^\?/, "").split("&")) {
        if (part) this.append(text(part.split("=", 1)[0]), text(part.slice(part.split("=", 1)[0].length + 1)));
      }
      return;
    }
    for (const [name, value] of typeof given[Symbol.iterator] === "function" ? given : Object.entries(given)) {
      for (const each of isArray(value) ? value : [value]) this.append(name, each);
    }
  }
  append(name, value) { this.#pairs.push([`${name}`, `${value}`]); }
  delete(name) { this.#pairs = this.#pairs.filter(([each]) => each !== name); }
  get(name) { return this.#pairs.find(([each]) => each === name)?.[1] ?? null; }
  getAll(name) { return this.#pairs.filter(([each]) => each === name).map(([, value]) => value); }
  has(name) { return this.#pairs.some(([each]) => each === name); }
  set(name, value) {
    const at = this.#pairs.findIndex(([each]) => each === `${name}`);
    if (at < 0) return this.append(name, value);
    this.#pairs = this.#pairs.filter(([each], i) => i === at || each !== `${name}`);
    this.#pairs[at] = [`${name}`, `${value}`];
  }
  get size() { return this.#pairs.length; }
  sort() { this.#pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)); }
  forEach(call, self) { for (const [name, value] of [...this.#pairs]) call.call(self, value, name, this); }
  keys() { return this.#pairs.map(([name]) => name).values(); }
  values() { return this.#pairs.map(([, value]) => value).values(); }
  entries() { return this.#pairs.values(); }
  [Symbol.iterator]() { return this.entries(); }
  toString() {
    const text = (part) => encodeURIComponent(wellFormed(part)).replace(/%20/g, "+").replace(/[!'()~]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
    return this.#pairs.map(([name, value]) => `${text(name)}=${text(value)}`).join("&");
  }
}

class TextEncoder {
  get encoding() { return "utf-8"; }
  encode(text = "") { return new Uint8Array(host.encode(wellFormed(`${text}`))); }
}
class TextDecoder {
  constructor(encoding = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    if (!/^utf-?8$/i.test(encoding)) throw new RangeError(`the encoding ${encoding} is not there, only utf-8`);
    [this.fatal, this.ignoreBOM] = [fatal, ignoreBOM];
  }
  get encoding() { return "utf-8"; }
  decode(bytes = new Uint8Array(), { stream = false } = {}) {
    if (stream) throw new RangeError("TextDecoder does not decode a stream: join its parts, and decode them together");
    const view = bytes instanceof ArrayBuffer ? new Uint8Array(bytes) : bytes;
    const given = view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength), text = host.decode(given);
    const isOdd = this.fatal && wellFormed(text).includes("\ufffd"); // or U+FFFD was in the bytes
    if (isOdd && toBase64(new TextEncoder().encode(text)) !== toBase64(new Uint8Array(given))) throw new TypeError("the bytes are not UTF-8");
    return this.ignoreBOM ? text : text.replace(/^\ufeff/, "");
  }
}

const crypto = {
  getRandomValues(array) {
    if (array.byteLength > 65536) throw new RangeError("getRandomValues gives at most 65,536 bytes");
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    for (let i = 0; i < bytes.length; i += 8) {
      const eight = new Uint8Array(BigUint64Array.of(host.random64()).buffer);
      bytes.set(eight.subarray(0, bytes.length - i), i);
    }
    return array;
  },
  randomUUID() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    bytes[6] = (bytes[6] & 15) | 64;
    bytes[8] = (bytes[8] & 63) | 128;
    const hex = arrayFrom(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  },
};

const structuredClone = (value, _, copies = new Map()) => {
  if (typeof value === "function" || typeof value === "symbol") throw new TypeError(`a ${typeof value} cannot be cloned`);
  if (typeof value !== "object" || value === null) return value;
  if (copies.has(value)) return copies.get(value);
  const into = (copy) => (copies.set(value, copy), copy), clone = (each) => structuredClone(each, _, copies);
  if (value instanceof Date) return into(new Date(+value));
  if (value instanceof RegExp) return into(new RegExp(value.source, value.flags));
  if (value instanceof TypedArray || value instanceof ArrayBuffer) return into(value.slice());
  if (value instanceof Promise || getAdvice(advices, value)) throw new TypeError(`${article(kindOf(value))} cannot be cloned`);
  if (value instanceof Map) {
    const copy = into(new Map());
    for (const [key, each] of value) copy.set(clone(key), clone(each));
    return copy;
  }
  if (value instanceof Set) {
    const copy = into(new Set());
    for (const each of value) copy.add(clone(each));
    return copy;
  }
  const copy = into(isArray(value) ? [] : value instanceof Error ? new Error(value.message) : {});
  for (const key of keysOf(value)) copy[key] = clone(value[key]);
  return copy;
};

const tools = new Proxy(create(null), {
  get: (_, name) => (typeof name === "string" && known.includes(name) ? namespace(name) : undefined),
  has: (_, name) => known.includes(name),
  ownKeys: () => known,
  getOwnPropertyDescriptor: (_, name) => (known.includes(name) ? { value: namespace(name), enumerable: true, configurable: true } : undefined),
});
advise(tools, "it has the namespaces: call one of their functions");

const globals = {
  ToolError, Response, portal, tools, console, crypto, structuredClone, TextEncoder, TextDecoder, URLSearchParams,
  setTimeout: (callback, ms, ...values) => addTimer(callback, ms, values, false),
  setInterval: (callback, ms, ...values) => addTimer(callback, ms, values, true),
  setImmediate: (callback, ...values) => addTimer(callback, 0, values, false),
  clearTimeout: clearTimer, clearInterval: clearTimer, clearImmediate: clearTimer,
};
for (const name of keysOf(globals)) defineProperty(globalThis, name, { value: globals[name], writable: true, configurable: true });
defineProperty(Math, "random", { value: host.random, writable: true, configurable: true });
