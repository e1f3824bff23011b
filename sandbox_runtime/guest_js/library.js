// The functions that guest.c calls: prepare a script, begin a run, wait within it, end it.

const MAX_MESSAGE_CHARS = 2000, MAX_TRACEBACK_CHARS = 4000, POLLS_PER_EXCHANGE = 16;
const DEADLOCK = new Error("the script is deadlocked: no call or timer is left to wake it");
const baseline = new Set(Reflect.ownKeys(globalThis));
let known = [], script = null, polls = 0;

const shorten = (text, most) => {
  if (text.length <= most) return text;
  const half = (most - 40) >> 1;
  return `${text.slice(0, half)}\n... ${text.length - 2 * half} characters left out ...\n${text.slice(-half)}`;
};

const isItself = (name) => !Object.hasOwn(globalThis, name) || (namespaces[name] !== undefined && globalThis[name] === namespaces[name]);

const ABSENT = {
  docs_search: 'In a script, use `await portal.search("create issue")`.',
  fetch: "Use `await portal.fetch(url)`, if the operator grants network access.",
  require: "There are no modules: all namespaces are there already, and so is `portal`.",
  process: "There is no process. The variables that were granted are in portal.env.",
  Buffer: "Use TextEncoder, TextDecoder, atob and btoa.",
};
const hintOf = (error) => {
  if (error instanceof ToolError) return `${error.hint ?? ""}`;
  const [, missing, what] = (error instanceof ReferenceError && /^'?(\w+)'? is not (defined|initialized)/.exec(error.message)) || [];
  if (missing === undefined) return error instanceof TypeError ? shapes(lineIn(error.stack)) : "";
  if (what === "initialized") return known.includes(missing) ? `The variable ${missing} hides the namespace: rename it, or write tools.${missing}.` : "";
  const near = nearest(missing, known);
  return Object.hasOwn(ABSENT, missing) ? ABSENT[missing] : near.length ? `Did you mean the namespace ${near[0]}?` : "";
};

// The shapes of the variables in a line of the script with their origins: an error may be about one of them.
const shapes = (line) => {
  const source = script?.lines[line - 1] ?? "", told = [];
  for (const name of new Set(source.match(/(?<![\w."'])[A-Za-z_$][\w$]*/g))) {
    if (baseline.has(name) || known.includes(name) || !Object.hasOwn(globalThis, name)) continue;
    const value = globalThis[name], from = resultOf(value)?.name;
    if (value === null || ["object", "string", "number", "boolean"].includes(typeof value)) told.push(`${name} is ${shape([value])}${from ? `, from ${from}` : ""}`);
  }
  for (const [called] of source.matchAll(/\w+\.\w+(?=\()/g)) if (latest.has(called)) told.push(`${called} returned ${shape([latest.get(called)])}`);
  return told.slice(0, 2).join("; ");
};
// What values are together: an array by its first items, an object by its first keys, `?` if some lack one.
const shape = (values, depth = 2) => {
  const kinds = {};
  for (const each of values) {
    const isData = typeof each === "object" && each !== null && !getAdvice(advices, each);
    (kinds[isArray(each) ? "array" : each === null ? "null" : isData ? "data" : typeof each] ??= []).push(each);
  }
  return Object.keys(kinds).map((kind) => shapeOf(kind, kinds[kind], depth)).join(" | ");
};
const shapeOf = (kind, values, depth) => {
  const parts = depth && kind === "array" ? values.flat().slice(0, 1000) : [];
  if (parts.length) { const of = shape(parts, depth - 1); return of.includes(" | ") ? `(${of})[]` : `${of}[]`; }
  const keys = depth && kind === "data" ? [...new Set(values.flatMap(keysOf))] : [];
  const fields = keys.slice(0, 8).map((key) => {
    const found = values.filter((each) => Object.hasOwn(each, key)).map((each) => each[key]);
    const name = /^[\p{L}_$][\p{L}\d_$]*$/u.test(key) ? key : stringify(key);
    return `${name.slice(0, 40)}${found.length < values.length ? "?" : ""}: ${shape(found, depth - 1)}`;
  });
  return keys.length ? `{${[...fields, ...(keys.length > 8 ? ["..."] : [])].join(", ")}}` : kind === "data" ? "object" : kind;
};

const told = (error) => {
  if (!(error instanceof Error)) return shown(error);
  let text = `${nameOfError(error)}${error.message}`;
  if (error instanceof AggregateError) text += `: ${error.errors.slice(0, 5).map(told).join("; ")}`;
  if (!(error instanceof ToolError)) return text;
  for (const [name, value] of [["data", error.data], ["blocks", error.blocks?.filter?.(({ type }) => type !== "text") ?? []]]) {
    const detail = typeof value === "string" ? value : value === null || value === undefined || value.length === 0 ? "" : stringify(value);
    if (!text.includes(detail)) text += `\n${name}: ${shorten(detail, 300)}`;
  }
  return text;
};
const traceback = (error, depth = 0) => {
  const lines = [`${error instanceof Error ? `${error.name}: ${error.message}` : shown(error)}`, ...frames(error?.stack)];
  if (error?.cause !== undefined && depth < 5) lines.push(`caused by ${traceback(error.cause, depth + 1)}`);
  return lines.join("\n");
};

// Without memory even the error is lost, or its message, or the step that a promise waits for.
const isOfMemory = (error) => host.failedAllocations() > 0 && (error === null || error === DEADLOCK || error instanceof InternalError);

// Code, message, line, hint and traceback of an error that the script did not catch.
const describe = (error) => {
  const line = lineIn(error?.stack);
  if (isOfMemory(error)) return { code: "memory_limit", line };
  if (error instanceof ResultLimitError) return { code: "result_limit", bytes: error.bytes };
  const code = error instanceof ToolError ? error.code : "script_error";
  const fields = { code, message: shorten(told(error), MAX_MESSAGE_CHARS), line, hint: shorten(hintOf(error), MAX_MESSAGE_CHARS) };
  return { ...fields, traceback: shorten(traceback(error), MAX_TRACEBACK_CHARS) };
};
const safely = (error) => {
  try {
    return describe(error);
  } catch (other) {
    return isOfMemory(other) ? { code: "memory_limit" } : { code: "script_error", message: "the error cannot be described" }; // its fields fail
  }
};

const valueOf = (value) => {
  const { assigned } = script, isSilent = !(isOutputUsed || usedBytes);
  if (assigned?.isBlock && !isSilent) return ["null", []];
  try {
    const [text, notices] = encode(value, "result", { most: resultBytes });
    charge(host.utf8Bytes(text));
    if (assigned && value !== undefined) return [text, [...notices, `the result is \`${assigned.name}\`, the last assignment`]];
    if (value === undefined && isSilent) notices.push("the value is undefined: end the script with an expression that has a value, or console.log");
    return [text, notices];
  } catch (error) {
    if (!assigned || !(error instanceof NotJsonError || error instanceof ResultLimitError)) throw error;
    return ["null", [`\`${assigned.name}\`, the last assignment, is not returned: ${error.message}`]];
  }
};

return {
  prepare(text, given) {
    known = given ? given.split(" ") : [];
    for (const name of keysOf(namespaces)) {
      if (known.includes(name)) continue;
      if (globalThis[name] === namespaces[name]) delete globalThis[name];
      delete namespaces[name];
    }
    script = null;
    try {
      const own = Reflect.ownKeys(globalThis).filter((key) => typeof key === "string" && !baseline.has(key) && !known.includes(key));
      const taken = [...known.filter((name) => !isItself(name)), ...own];
      const { error, run, facts, assigned } = analysis.prepare(text, known, taken);
      if (error) return stringify({ error });
      host.compile(run);
      script = { names: known.filter((name) => text.includes(name)), assigned, lines: text.split("\n") };
      return stringify(facts);
    } catch (error) {
      return stringify({ error: { ...safely(error), ...(error instanceof SyntaxError && { code: "syntax_error" }) } });
    }
  },

  begin(text) {
    const settings = parse(text);
    beginCalls(settings);
    [timers, rejections, polls] = [[], new Map(), 0];
    [latest, beside, looked] = [new Map(), new Map(), new Set()];
    [resultBytes, usedBytes, emitNotices] = [settings.result_bytes, 0, new Set()];
    portal.run.id = settings.run_id ?? "";
    Object.assign(portal.env, settings.environment);
    for (const name of new Set([...script.names, ...keysOf(settings.library)])) {
      if (!known.includes(name)) continue;
      if (isItself(name)) defineProperty(globalThis, name, { value: namespace(name), writable: true, configurable: true });
      tables[name] = settings.library[name];
    }
  },

  // The script awaits something: exchange, or wait for the next timer. Throws if nothing can wake it.
  wait() {
    const left = timers.length ? Math.max(0, Math.ceil(timers[0].at - host.monotonic() - 1e-6)) : -1;
    if (left < 0 && !waiting) throw DEADLOCK;
    // A busy script must neither starve answers nor pay for an exchange at every step.
    if (left !== 0 || outbox.length || (waiting && ++polls % POLLS_PER_EXCHANGE === 0)) exchange(left);
    if (timers.length && timers[0].at <= host.monotonic()) runTimer();
  },

  rejected(promise, error) {
    if (promise === undefined) uncaught(error);
    else rejections.set(promise, error);
  },
  handled: (promise) => { rejections.delete(promise); },

  // The header in one line, then the JSON of the value.
  end(isDone, result) {
    const header = {};
    let text = "null", notices = [];
    try {
      if (isDone) [text, notices] = valueOf(result.value);
    } catch (error) {
      const isValue = error instanceof NotJsonError && !frames(error.stack).length;
      header.error = isValue ? { code: "result_not_json", message: error.message, hint: "" } : safely(error);
    }
    if (!isDone) header.error = safely(result);
    for (const error of rejections.values()) if (error !== result) uncaught(error);
    const ofCalls = endCalls();
    flush();
    const ofOutput = isOutputReplaced ? [`stdout: ${REPLACED}`] : [];
    header.notices = [...notices, ...[...emitNotices].slice(0, MAX_NOTICES), ...ofOutput, ...ofCalls];
    return `${stringify(header)}\n${text}`;
  },
};
