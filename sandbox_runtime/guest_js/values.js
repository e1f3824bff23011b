// Values as JSON: integers stay exact, and what is no JSON becomes plain data with a notice, or an error that says why.

// The built-ins under names of our own: a script may declare others, like `const Date = "2026-11-29"`.
const {
  AggregateError, Array, ArrayBuffer, BigInt, BigUint64Array, Date, Error, InternalError, JSON, Map, Math, Number, Object, Promise, Proxy,
  RangeError, ReferenceError, Reflect, RegExp, Set, String, Symbol, SyntaxError, TypeError, Uint8Array, WeakMap,
} = globalThis;
const { parse: parseNative, stringify, rawJSON } = JSON;
const { isArray, from: arrayFrom } = Array;
const { isFinite, isSafeInteger } = Number;
const { keys: keysOf, getPrototypeOf, defineProperty, create } = Object;
const [ordinary, TypedArray] = [Object.prototype, getPrototypeOf(Uint8Array)];
// Built-in functions as `call(value, ...)`: a script may replace the methods.
const uncurried = (method) => Function.prototype.call.bind(method);
const wellFormed = uncurried(String.prototype.toWellFormed);
const getAdvice = uncurried(WeakMap.prototype.get), setAdvice = uncurried(WeakMap.prototype.set);

const MAX_DIGITS = 4300, MAX_DEPTH = 200, MAX_ITEMS = 1_000_000, MAX_PLACES = 3, MAX_NOTICES = 10;
const INTEGER = /^-?[0-9]+$/;
const REPLACED = "characters that are not Unicode text (lone surrogates) became U+FFFD";
const TOO_MANY_DIGITS = "an integer of more than 4,300 digits";

// What to do with an object of ours that is no JSON: a call, a function of the library, a Response.
const advices = new WeakMap();
const advise = (value, text) => (setAdvice(advices, value, text), value);

const exact = (value, source) =>
  typeof value === "number" && !isSafeInteger(value) && source !== undefined && INTEGER.test(source) ? BigInt(source) : value;
const parse = (text) => (host.hasLongInteger(text) ? parseNative(text, (_, value, { source }) => exact(value, source)) : parseNative(text));

JSON.parse = function (text, reviver) {
  if (typeof text === "object" && text !== null && !getAdvice(advices, text)) return text; // the result of a call is data already
  if (typeof reviver !== "function") return parse(`${text}`);
  return parseNative(text, function (key, value, context) { return reviver.call(this, key, exact(value, context.source), context); });
};
defineProperty(JSON, "parse", { enumerable: false });
defineProperty(BigInt.prototype, "toJSON", { value() { return rawJSON(this.toString()); }, writable: true, configurable: true });

class NotJsonError extends TypeError {
  get name() { return "TypeError"; }
}

const article = (name) => `${/^[aeio]/i.test(name) ? "an" : "a"} ${name}`;
const kindOf = (value) => (value === null ? "null" : typeof value === "object" ? (getPrototypeOf(value)?.constructor?.name || "object") : typeof value);
const textOf = (bytes) => {
  const text = host.decode(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
  return text.includes("\ufffd") ? [toBase64(bytes), "base64 text"] : [text, "text"];
};
const toBase64 = (bytes) => {
  let text = "";
  for (let i = 0; i < bytes.length; i += 8190) text += btoa(String.fromCharCode(...bytes.subarray(i, i + 8190)));
  return text;
};
const keyOf = (key) => {
  if (typeof key === "object" || typeof key === "symbol" || typeof key === "function") throw new NotJsonError("a key");
  return `${key}`;
};
const iterated = (value) => {
  const items = [];
  for (const item of value) if (items.push(item) > MAX_ITEMS) return [null, ""]; // it may have no end
  return [items, "an array"];
};
const FORMS = [
  [Date, (value) => [isNaN(value) ? null : value.toISOString(), "ISO 8601 text"]],
  [Map, (value) => [Object.fromEntries(arrayFrom(value, ([key, item]) => [keyOf(key), item])), "an object"]],
  [Set, (value) => [[...value], "an array"]],
  [Error, (value) => [`${value.name}: ${value.message}`, "text"]],
  [RegExp, (value) => [`${value}`, "text"]],
  [Uint8Array, textOf],
  [ArrayBuffer, (value) => textOf(new Uint8Array(value))],
  [TypedArray, (value) => [[...value], "an array"]],
];

// Returns a copy that JSON represents, or the value itself if it needs no change, and the notices about changes.
const plainOf = (root, place, isStrict, most) => {
  const path = [], changes = new Map();
  let values = 0;
  const where = (key) => place + [...path, ...(key === undefined ? [] : [key])].map((each) =>
    (typeof each === "number" ? `[${each}]` : `[${stringify(each.slice(0, 40))}]`)).join("");
  const note = (change) => {
    const places = changes.get(change) ?? [];
    changes.set(change, places);
    if (places.length <= MAX_PLACES) places.push(where());
  };
  const refuse = (what, advice) => { throw new NotJsonError(`${where()} is ${what}, which is not JSON: ${advice}`); };
  const number = (replaced, fault) => {
    if (isStrict) throw new NotJsonError(`${where()} is ${fault}: pass a string, if the function accepts it`);
    note(`was ${fault} and became ${replaced === null ? "null" : "text"}`);
    return replaced;
  };
  const inside = (key, value) => {
    path.push(key);
    const plain = convert(value);
    path.pop();
    return plain;
  };
  const formed = (value) => {
    const advice = getAdvice(advices, value), kind = kindOf(value);
    if (advice) refuse(article(kind), advice);
    if (value instanceof Promise) refuse("a Promise", "write `await` before it");
    let [plain, form] = [null, ""];
    const known = FORMS.find(([Kind]) => value instanceof Kind);
    if (known) {
      try { [plain, form] = known[1](value); } catch (error) {
        if (!(error instanceof NotJsonError)) throw error;
        throw new NotJsonError(`a key of ${where()} is an object: JSON keys are strings`);
      }
    } else if (typeof value.toJSON === "function") return convert(value.toJSON());
    else if (typeof value[Symbol.iterator] === "function") [plain, form] = iterated(value);
    else return record(value);
    if (!form) refuse(article(kind), "return strings, numbers, booleans, null, arrays and objects");
    note(`was ${article(kind)} and became ${form}`);
    return convert(plain);
  };
  const record = (value) => {
    let plain = value;
    const keys = keysOf(value);
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i], item = value[key], converted = inside(key, item);
      if (converted === item) continue;
      if (plain === value) plain = { ...value };
      defineProperty(plain, key, { value: converted, enumerable: true, writable: true, configurable: true });
    }
    return plain;
  };
  const convert = (value) => {
    if (++values > most) throw new ResultLimitError();
    if (typeof value === "string" || typeof value === "boolean" || value === undefined || value === null) return value;
    if (typeof value === "number") return isFinite(value) ? value : number(null, "not a finite number");
    if (typeof value === "bigint") return `${value}`.length <= MAX_DIGITS ? rawJSON(`${value}`) : number(`${value}`, TOO_MANY_DIGITS); // a script may replace BigInt's toJSON
    if (typeof value === "function") refuse("a function", getAdvice(advices, value) ?? "call it, or leave it out");
    if (typeof value === "symbol") refuse("a symbol", "return its text");
    if (path.length > MAX_DEPTH) throw new NotJsonError(`the value is nested more than ${MAX_DEPTH} levels deep, or contains itself`);
    if (isArray(value)) {
      let plain = value;
      for (let i = 0; i < value.length; i++) {
        const item = value[i], converted = inside(i, item);
        if (converted === item) continue;
        if (plain === value) plain = [...value];
        plain[i] = converted;
      }
      return plain;
    }
    const prototype = getPrototypeOf(value);
    return (prototype === ordinary || prototype === null) && !getAdvice(advices, value) && typeof value.toJSON !== "function"
      ? record(value) : formed(value);
  };
  return [convert(root), () => [...changes].slice(0, MAX_NOTICES).map(([change, places]) =>
    `${places.slice(0, MAX_PLACES).join(", ")}${places.length > MAX_PLACES ? " and more" : ""} ${change}`)];
};

// The run may not return so much: `bytes` have been counted, if the value was not even written.
class ResultLimitError extends Error {
  constructor(bytes) { super("the result is too large"); this.bytes = bytes; }
}

const SURROGATE = /(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/g;

// The JSON of a value, and notices about changes in it.
const encode = (value, place, { isStrict = false, most = Infinity } = {}) => {
  const isSimple = typeof value === "string" || typeof value === "boolean" || value === null || isSafeInteger(value);
  const [plain, notices] = isSimple ? [value, () => []] : plainOf(value, place, isStrict, most);
  const text = stringify(plain) ?? "null";
  const clean = host.hasSurrogates(text) ? text.replace(SURROGATE, "$1\ufffd") : text;
  return [clean, clean === text ? notices() : [...notices(), `${place}: ${REPLACED}`]];
};
