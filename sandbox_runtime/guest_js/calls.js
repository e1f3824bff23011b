// Calls: sent to the host in batches, answered in `exchange`. The output that goes with them. The namespaces.

const then = uncurried(Promise.prototype.then);
const EAGER_LINES = 10_000, BUFFER_CHARS = 4096, PIECE_CHARS = 1 << 20, OUTBOX_CHARS = 1 << 20;

class ToolError extends Error {
  constructor(message = "", code = "tool_error", hint = "", data = null, blocks = []) {
    super(message);
    this.code = code;
    this.hint = hint;
    this.data = data;
    this.blocks = blocks;
  }
}
defineProperty(ToolError.prototype, "name", { value: "ToolError", writable: true, configurable: true });
// The first lines of a run are sent one by one, so that a stopped run keeps its output; later ones in chunks.
let printed = "", eagerLines = 0, isOutputUsed = false, isOutputReplaced = false;
const write = (text) => {
  printed += text;
  isOutputUsed = true;
  if (printed.length >= BUFFER_CHARS || eagerLines-- > 0) flush();
};
const flush = () => {
  if (!printed) return;
  const text = wellFormed(printed);
  isOutputReplaced ||= text !== printed;
  printed = "";
  for (let start = 0; start < text.length; start += PIECE_CHARS) host.print(wellFormed(text.slice(start, start + PIECE_CHARS)));
};

// The line of the script in a stack, innermost first, and the script's own lines of a stack.
const LINE = /\(?script\.js:(\d+)/;
const lineIn = (stack) => +(LINE.exec(`${stack ?? ""}`)?.[1] ?? 0) || null;

// A call looks like a promise. Any other use says to await it, and it knows whether anything waits for it.
class Call {
  constructor(name, convert) {
    this.name = name;
    this.convert = convert;
    this.error = new ToolError(); // made here, because its stack has the line
    this.isUsed = false;
    this.promise = new Promise((resolve, reject) => { this.resolve = resolve; this.reject = reject; });
  }

  get advice() { return `\`${this.name}(...)\` was not awaited: write \`await ${this.name}(...)\``; }
  get line() { return lineIn(this.error.stack); }
  get place() { return `\`${this.name}(...)\`${this.line ? ` on line ${this.line}` : ""}`; }

  fail(code, message, hint, data, blocks) {
    const { error } = this;
    defineProperty(error, "message", { value: message, writable: true, configurable: true });
    error.code = code;
    error.hint = hint;
    error.data = data ?? null;
    error.blocks = blocks ?? [];
    this.reject(error);
  }

  get(promise, key) {
    if (key === "constructor") return Promise;
    if (key === Symbol.toStringTag) return "Promise";
    if (key !== "then" && key !== "catch" && key !== "finally") throw new TypeError(this.advice);
    this.isUsed = true;
    return key === "then" ? (done, failed) => then(promise, done, failed) : promise[key].bind(promise);
  }

  has() { throw new TypeError(this.advice); }
  ownKeys() { throw new TypeError(this.advice); }
}

let outbox = [], outboxChars = 0, unsent = create(null), pending = create(null), waiting = 0, lastCall = 0;
let callNotices = new Set(), argumentBytes = 0;

const beginCalls = (settings) => {
  outbox = [];
  [outboxChars, waiting] = [0, 0];
  [unsent, pending] = [create(null), create(null)];
  callNotices = new Set();
  argumentBytes = settings.argument_bytes;
  [printed, eagerLines, isOutputUsed, isOutputReplaced] = ["", EAGER_LINES, false, false];
};

const startCall = (name, given, convert) => {
  const call = new Call(name, convert), parts = [];
  const shown = advise(new Proxy(call.promise, call), call.advice);
  try {
    for (const key of keysOf(given)) {
      if (given[key] === undefined) continue;
      const [text, notices] = encode(given[key], `argument ${key[0] === "*" ? key.slice(1) : key}`, { isStrict: true });
      for (const notice of notices) callNotices.add(`${name}: ${notice}`);
      parts.push(`${stringify(wellFormed(key))}:${text}`);
    }
  } catch (error) {
    if (error instanceof NotJsonError) error.message = `${name}: ${error.message}`;
    call.reject(error);
    return shown;
  }
  const text = `{${parts.join()}}`, size = host.utf8Bytes(text);
  // The host refuses arguments that are too long in any case, and only needs their size for its message.
  const line = `${++lastCall} ${name} ${size > argumentBytes ? `!${size}` : text}`;
  unsent[lastCall] = pending[lastCall] = call;
  waiting++;
  outbox.push(line);
  outboxChars += line.length;
  if (outboxChars > OUTBOX_CHARS) exchange(0);
  return shown;
};

// Sends the outbox, waits at most so long (negative: no limit), and delivers the answers.
const exchange = (timeoutMs) => {
  flush();
  const sent = outbox.join("\n");
  outbox = [];
  outboxChars = 0;
  unsent = create(null);
  const received = host.exchange(sent, timeoutMs);
  const answers = typeof received === "string" ? parse(received) : (received ?? []);
  for (let i = 0; i < answers.length; i++) deliver(answers[i]);
};

const deliver = (answer) => {
  const call = pending[answer[0]];
  if (!call) return;
  delete pending[answer[0]];
  waiting--;
  if (!answer[1]) call.fail(answer[2], answer[3], answer[4], answer[5], answer[6]);
  else if (call.convert) call.resolve(call.convert(answer[2]));
  else {
    if (!call.name.startsWith("portal.")) noteResult(call.name, answer[2], answer[3], answer[4]);
    call.resolve(answer[2]);
  }
};

// Unsent calls are not made, only reported to the host. Returns the notices of the calls.
const endCalls = () => {
  const notices = new Set(keysOf(unsent).map((id) => unsent[id]).map(({ place, isUsed }) => (isUsed
    ? `${place} never ran: the script ended first. Await what calls it, like \`await Promise.all(list.map(async (each) => ...))\``
    : `${place} was never awaited, so it never ran`)));
  for (const id of keysOf(pending)) {
    const call = pending[id];
    if (!unsent[id] && !call.isUsed) notices.add(`${call.place} was not awaited: the script ended before its answer`);
  }
  if (outbox.length) {
    outbox = keysOf(unsent).map((id) => `${id} ${unsent[id].name} ~`);
    pending = create(null);
    exchange(0);
  }
  return [...[...notices].slice(0, 10), ...[...callNotices].slice(0, 10), ...besideNotices()];
};

// The results of calls by the value that a script holds, for portal.blocks, portal.text and hints.
let results = new WeakMap(), texts = new Map(), latest = new Map(), beside = new Map(), looked = new Set();
const MAX_TEXTS = 16;
const noteResult = (name, value, blocks, lacking) => {
  const known = { name, value, blocks };
  if (typeof value === "object" && value !== null) results.set(value, known);
  else if (texts.delete(value), texts.set(value, known).size > MAX_TEXTS) texts.delete(texts.keys().next().value);
  latest.set(name, value);
  for (const at of lacking ?? []) beside.set(name, (beside.get(name) ?? new Set()).add(`${blocks?.[at]?.type}`));
};
const resultOf = (value) => (typeof value === "object" && value !== null ? results.get(value) : texts.get(value));
const besideNotices = () => {
  const found = [...beside].filter(([name]) => !looked.has(name));
  const named = found.slice(0, 5).map(([name, kinds]) => `${name} (${[...kinds].sort().join(", ").slice(0, 80)})`);
  const more = found.length > 5 ? ", ..." : "";
  return found.length ? [`content came beside the data of ${named.join(", ")}${more}: portal.blocks(result) has it`] : [];
};

// The namespaces. The host may send a table for one, as text: "\nname signature\n". It is searched as text, because
// most runs need one function of hundreds. Hidden functions have no signature.
const IDENTIFIER = /^[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*$/u;
let tables = create(null), namespaces = create(null);
const namesIn = (table) => (table ?? "").split("\n").filter((row) => /^\S+ \S/.test(row)).map((row) => row.slice(0, row.indexOf(" ")));
const asArguments = (given) => {
  const [only] = given;
  const isRecord = given.length === 1 && typeof only === "object" && only !== null && !isArray(only) &&
    [ordinary, null].includes(getPrototypeOf(only));
  return isRecord ? only : Object.fromEntries(given.map((value, index) => [`*${index}`, value]));
};

class Namespace {
  constructor(name) { this.name = name; this.functions = create(null); }

  get(_, key) {
    if (typeof key !== "string" || key === "then" || key === "toJSON" || !IDENTIFIER.test(key)) return undefined;
    return (this.functions[key] ??= this.make(key));
  }
  make(key) {
    const name = `${this.name}.${key}`, { name: own } = this;
    const called = { [name]: (...given) => {
      const table = tables[own];
      if (table === undefined || table.includes(`\n${key} `)) return startCall(name, asArguments(given));
      const call = new Call(name), names = namesIn(table), near = nearest(key, names);
      const hint = near.length ? `nearest: ${near.map((each) => `${own}.${each}`).join(", ")}`
        : `look it up: docs_search(query="${key.slice(0, 60).split("_").join(" ")}")`;
      call.fail("unknown_function", `${own} has no function "${key}"; ${hint} (${own} has ${names.length} functions)`, "");
      return advise(new Proxy(call.promise, call), call.advice);
    } }[name];
    return advise(called, `it is ${name}: call it`);
  }
  has(_, key) { return typeof key === "string" && (tables[this.name] ?? "").includes(`\n${key} `); }
  ownKeys() { return namesIn(tables[this.name]); }
  getOwnPropertyDescriptor(_, key) {
    return this.has(_, key) ? { value: this.get(_, key), enumerable: true, configurable: true } : undefined;
  }
  set(_, key) { throw new TypeError(`${this.name} is a namespace: ${this.name}.${String(key)} cannot be set`); }
}

const namespace = (name) => (namespaces[name] ??= advise(new Proxy(create(null), new Namespace(name)), "it is a namespace: call one of its functions"));

// The names that are most like a missing one.
const nearest = (name, names) => names.map((each) => [similarity(name, each), each]).filter(([share]) => share >= 0.6)
  .sort(([a], [b]) => b - a).slice(0, 3).map(([, each]) => each);
// The share of characters in common, by the longest common subsequence.
const similarity = (a, b) => {
  let row = Array(b.length + 1).fill(0);
  for (const char of a.slice(0, 64)) {
    let before = 0;
    row = row.map((above, j) => {
      const now = j === 0 ? 0 : b[j - 1] === char ? row[j - 1] + 1 : Math.max(above, before);
      return (before = now);
    });
  }
  return (2 * row[b.length]) / (a.length + b.length);
};
