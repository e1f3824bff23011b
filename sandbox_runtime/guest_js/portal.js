// The object `portal`: functions of the portal itself, as in guest/portal_module.py.

const SECONDS = { seconds: 1, minutes: 60, hours: 3600, days: 86_400 };
let resultBytes = 0, usedBytes = 0, emitNotices = new Set();

// Counts bytes of the result: the host would refuse more.
const charge = (size) => {
  if (usedBytes + size > resultBytes) throw new ResultLimitError(usedBytes + size);
  usedBytes += size;
};

const amountOf = (name, unit, amount) => {
  if (typeof amount !== "number") throw new TypeError(`portal.${name} expects a number as ${unit}, not ${typeof amount}`);
  if (!(amount >= 0 && amount < 1e300)) throw new RangeError(`portal.${name} expects a finite number from 0 as ${unit}, not ${amount}`);
  return amount;
};
const nameOf = (namespaceOrName) => {
  const found = keysOf(namespaces).find((name) => namespaces[name] === namespaceOrName);
  return found ?? namespaceOrName;
};
const ask = (name, given, upstream) => startCall(`portal.${name}`, { ...given, upstream: nameOf(upstream) ?? undefined });
// The identifier and the upstream of a row of a list, or of an identifier.
const rowOf = (row, key, upstream) => (typeof row === "object" && row !== null ? [row[key], upstream ?? row.upstream] : [row, upstream]);
const upstreamOf = (options) => (typeof options === "object" && options !== null && "upstream" in options ? options.upstream : options);

const bytesOf = (body) => {
  if (body instanceof ArrayBuffer) return new Uint8Array(body);
  if (ArrayBuffer.isView(body)) return new Uint8Array(body.buffer, body.byteOffset, body.byteLength);
  if ((typeof body !== "object" && typeof body !== "function") || body instanceof URLSearchParams) return new Uint8Array(host.encode(wellFormed(`${body}`)));
  throw new TypeError(`portal.fetch accepts text, bytes or URLSearchParams as body, not ${article(kindOf(body))}: ${getAdvice(advices, body) ?? "pass it as json, or its text"}`);
};

class Headers {
  #values = new Map();
  constructor(pairs) {
    for (const [name, value] of pairs) {
      const key = name.toLowerCase(), known = this.#values.get(key);
      this.#values.set(key, known === undefined ? value : `${known}, ${value}`);
    }
  }
  get(name) { return this.#values.get(`${name}`.toLowerCase()) ?? null; }
  has(name) { return this.#values.has(`${name}`.toLowerCase()); }
  keys() { return this.#values.keys(); }
  values() { return this.#values.values(); }
  entries() { return this.#values.entries(); }
  forEach(each) { this.#values.forEach((value, name) => each(value, name, this)); }
  [Symbol.iterator]() { return this.#values.entries(); }
}

// The response of a host, whatever its status. Its body may be read any number of times, with `await` or without.
class Response {
  #bytes;
  constructor({ status, url, headers, body }) {
    this.status = status;
    this.ok = status < 400;
    this.url = url;
    this.headers = new Headers(headers);
    this.#bytes = Uint8Array.from(atob(body), (char) => char.charCodeAt(0));
    advise(this, "use response.json(), response.text() or response.status");
  }
  get statusText() { return ""; }
  text() { return host.decode(this.#bytes.buffer).replace(/^\ufeff/, ""); }
  json() { return parse(this.text()); }
  bytes() { return this.#bytes.slice(); }
  arrayBuffer() { return this.#bytes.slice().buffer; }
  raise_for_status() {
    if (!this.ok) throw new ToolError(`HTTP ${this.status} from ${this.url}: ${this.text().slice(0, 200)}`, "http_error");
    return this;
  }
}

const portal = {
  ToolError,
  Response,
  run: { id: "" },
  env: {},

  emit(blocks) {
    for (const block of isArray(blocks) ? blocks : [blocks]) {
      if (typeof block?.type !== "string") {
        throw new TypeError('portal.emit expects content blocks such as {type: "text", text: "..."} or ' +
          `{type: "image", data: base64Text, mimeType: "image/png"}; this is ${article(kindOf(block))} without a string as type`);
      }
      const [text, notices] = encode(block, "emitted block", { most: resultBytes });
      for (const notice of notices) emitNotices.add(notice);
      charge(host.utf8Bytes(text));
      host.emit(text);
    }
  },

  // All content blocks of the call that returned this value, also those beside its data.
  blocks(result) {
    const known = resultOf(result);
    if (!known) throw new TypeError(getAdvice(advices, result) ?? "pass the value of an upstream's function as it returned it, not a copy or a part");
    looked.add(known.name);
    const { value, blocks = value === null ? [] : isArray(value) ? value : [value] } = known;
    return blocks.map((block, at) => {
      if (typeof block !== "object" || block === null) return { type: "text", text: block };
      if (block.text !== null) return { ...block };
      const said = isArray(value) && at < value.length ? value[at] : value; // that of long data is written anew
      return { ...block, text: typeof said === "string" ? said : stringify(said) };
    });
  },
  text: (result) => portal.blocks(result).filter(({ type }) => type === "text").map(({ text }) => text ?? "").join("\n"),

  fetch(url, { method = "GET", headers = {}, params, json, body, timeout, signal, follow_redirects = true, redirect, ...others } = {}) {
    const unknown = keysOf(others);
    if (unknown.length) throw new TypeError(`portal.fetch has no option ${unknown[0]}`);
    if (json !== undefined && body !== undefined) throw new TypeError("portal.fetch accepts json or body, not both");
    const sent = (typeof headers[Symbol.iterator] === "function" ? [...headers] : Object.entries(headers)).map(([name, value]) => [name, `${value}`]);
    if (json !== undefined) {
      body = encode(json, "json")[0];
      if (!sent.some(([name]) => name.toLowerCase() === "content-type")) sent.push(["Content-Type", "application/json"]);
    }
    const isForm = body instanceof URLSearchParams && !sent.some(([name]) => name.toLowerCase() === "content-type");
    if (isForm) sent.push(["Content-Type", "application/x-www-form-urlencoded;charset=UTF-8"]);
    const all = typeof params?.[Symbol.iterator] === "function" ? params : Object.entries(params ?? {});
    const pairs = typeof all === "string" ? all : [...all].filter(([, value]) => value !== undefined && value !== null);
    const query = `${new URLSearchParams(pairs)}`, [base, ...fragment] = `${url}`.split("#");
    const given = { url: [query ? `${base}${base.includes("?") ? "&" : "?"}${query}` : base, ...fragment].join("#"), method: method.toUpperCase(), headers: sent };
    if (body !== undefined && body !== null) given.body = toBase64(bytesOf(body));
    if (timeout !== undefined) given.timeout = timeout;
    if (!follow_redirects || redirect === "manual") given.follow_redirects = false;
    return startCall("portal.fetch", given, (data) => new Response(data));
  },

  search: (query = "", { detail = "brief", limit = 5, upstream } = {}) => ask("search", { query, detail, limit }, upstream),
  describe: (called) => ask("describe", { function: typeof called === "function" ? called.name : called }),
  resources: (options) => ask("resources", {}, upstreamOf(options)),
  read_resource(resource, options) {
    const [uri, upstream] = rowOf(resource, "uri", upstreamOf(options));
    return ask("read_resource", { uri }, upstream);
  },
  prompts: (options) => ask("prompts", {}, upstreamOf(options)),
  get_prompt(prompt, given = {}, options = undefined) {
    const [name, upstream] = rowOf(prompt, "name", upstreamOf(options));
    return ask("get_prompt", { name, arguments: given }, upstream);
  },
  // Seconds, or {seconds, minutes, hours, days}.
  sleep(time = 0) {
    const amounts = typeof time === "object" && time !== null ? time : { seconds: time };
    const wrong = keysOf(amounts).find((unit) => !(unit in SECONDS));
    if (wrong) throw new TypeError(`portal.sleep expects seconds, minutes, hours or days, not ${wrong}`);
    return ask("sleep", { seconds: keysOf(amounts).reduce((sum, unit) => sum + amountOf("sleep", unit, amounts[unit]) * SECONDS[unit], 0) });
  },
  event(name, options) {
    const timeout = typeof options === "object" && options !== null ? options.timeout : options;
    return ask("event", timeout === undefined ? { name } : { name, timeout: amountOf("event", "timeout", timeout) });
  },
  event_url: (name) => ask("event_url", { name }),
  approve: (question) => ask("approve", { question }),
  recall: (handle) => ask("recall", { handle }),
  search_text: (handle, text, { context = 200, limit = 10 } = {}) => ask("search_text", { handle, text, context, limit }),
};
for (const name of keysOf(portal)) {
  const camel = name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
  if (camel !== name) defineProperty(portal, camel, { value: portal[name], configurable: true });
}
defineProperty(portal, "files", { get() { throw new TypeError("portal.files: JavaScript has no files here; a script in Python has those that were granted"); }, configurable: true });
setAdvice(advices, portal, "it is the portal: call one of its functions");
