// What no script has: packages, files, the network, a browser, the names of Python.

const MAX_ABSENT = 10;
const NO_NETWORK = "Scripts have no network. Call upstream functions, or portal.fetch if the operator grants access.";
const NO_FILES = "JavaScript has no files here: call upstream functions. Only Python scripts can be granted a folder.";
const ONE_LOCALE = "Dates print in one locale and in UTC: use toISOString. Python scripts have time zones. Numbers have toFixed.";
const NO_BROWSER = "Scripts run in no browser: return the value.";
const NO_ABORT = "Nothing can be aborted: Promise.race with a timer stops waiting.";
const NO_IMPORT = "There are no packages: use ECMAScript itself, portal, and the namespaces that docs_search shows.";
const ABSENT = {
  fetch: NO_NETWORK, XMLHttpRequest: NO_NETWORK, WebSocket: NO_NETWORK, EventSource: NO_NETWORK, axios: NO_NETWORK,
  process: "There is no process. portal.env has the variables that the operator grants.",
  Deno: NO_IMPORT, Bun: NO_IMPORT, require: NO_IMPORT, module: NO_IMPORT, exports: NO_IMPORT,
  Buffer: "Use TextEncoder, TextDecoder, atob and btoa.",
  __dirname: NO_FILES, __filename: NO_FILES, fs: NO_FILES, window: NO_BROWSER, document: NO_BROWSER,
  localStorage: NO_BROWSER, sessionStorage: NO_BROWSER, alert: NO_BROWSER, navigator: NO_BROWSER,
  URL: "Take a URL apart with a regular expression. URLSearchParams is there.",
  Intl: ONE_LOCALE,
  AbortController: NO_ABORT, AbortSignal: NO_ABORT,
  prompt: "Nobody can answer. Write the value into the script, or ask with portal.approve.",
};
const PYTHON = {
  print: "console.log(...)", True: "true", False: "false", None: "null", len: ".length", str: "String(...)",
  int: "Number(...)", float: "Number(...)", range: "a for loop", json: "JSON.stringify(...) or JSON.parse(...)",
  dict: "{...}", list: "[...]", asyncio: "await Promise.all([...])", sorted: ".sort()", enumerate: ".entries()",
};
/** What no script has, where no condition guards it. */
function absences(names, lines, lineOf) {
  const told = new Map();
  const tell = (name, node, message, hint, code = "not_there") => {
    const line = lineOf(node.start);
    if (!told.has(name) && lines.has(line) && !isGuarded(node)) told.set(name, [line, code, message, hint]);
  };
  for (const [name, hint] of [...Object.entries(ABSENT), ...Object.entries(PYTHON)]) {
    for (const node of names.loads.get(name) ?? []) {
      if (!names.isFree(node) || names.path(node) || isRequire(node.up)) continue; // an upstream may be named `fetch`
      if (Object.hasOwn(ABSENT, name)) tell(name, node, `there is no ${name}`, hint);
      else tell(name, node, `JavaScript has no name '${name}'`, `Write ${hint}.`, "not_javascript");
    }
  }
  const modules = [...names.all("ImportDeclaration", "ImportExpression", "ExportAllDeclaration").map((node) => [node, node.source])];
  modules.push(...names.all("CallExpression").filter(isRequire).map((node) => [node, node.arguments[0]]));
  for (const [node, source] of modules) {
    const name = literalOf(source);
    if (name === undefined || names.modulePath(name)) continue;
    const hint = /^(?:node:)?(?:fs|path|os)\b/.test(name) ? NO_FILES : /fetch|http|axios|undici|\bgot\b/.test(name) ? NO_NETWORK : NO_IMPORT;
    tell(name, node, `there is no module '${name}'`, hint);
  }
  for (const node of names.all("MemberExpression")) {
    const path = names.path(node);
    if (node.object.name === "crypto" && keyOf(node) === "subtle" && !names.owner(node.object)) {
      tell("crypto.subtle", node, "crypto has no 'subtle'", "It has randomUUID and getRandomValues. Python scripts have hashlib.");
    }
    if (path?.[0] !== "portal" || path.length !== 2 || PORTAL.has(path[1]) || OF_PORTAL.has(path[1]) || isStored(node)) continue;
    const isFiles = path[1] === "files";
    tell(path.join("."), node, `portal has no '${path[1]}'`, isFiles ? NO_FILES : `It has ${[...PORTAL, ...OF_PORTAL].join(", ")}.`);
  }
  return [...told.values(), ...ignoredOptions(names, lineOf)].slice(0, MAX_ABSENT);
}

/** Locales and options that would be ignored, so that the value would be wrong without an error. */
function* ignoredOptions(names, lineOf) {
  for (const { callee, arguments: given } of names.all("CallExpression")) {
    const name = callee.type === "MemberExpression" ? keyOf(callee) : "", isComparison = name === "localeCompare";
    const options = isComparison ? given.slice(2) : /^toLocale(?:Date|Time)?String$/.test(name) ? given : [];
    const isNumeric = (node) => name === "toLocaleString" && node.properties?.every((each) => each.key && NUMBER_OPTIONS.has(keyOf(each)));
    const isOne = (node) => node.name === "undefined" || /^en(?:-US)?$/i.test(literalOf(node)) || isNumeric(node);
    const isKnown = (node) => node.elements?.every((each) => each && isOne(each)) ?? isOne(node);
    if (options.every((node) => isKnown((node.type === "Identifier" && names.onlyValue(node)) || node))) continue;
    const message = `${name} takes no ${isComparison ? "" : "locale but en-US, and no such "}options`;
    yield [lineOf(callee.end), "not_there", message, isComparison ? "Compare numbers, or the texts in lower case." : ONE_LOCALE];
  }
}
const NUMBER_OPTIONS = words("style currency minimumFractionDigits maximumFractionDigits useGrouping");

/** Whether a condition decides if a node is evaluated, or it is only tested: `typeof fetch`. */
function isGuarded(node) {
  for (let child = node, { up } = node; up; [child, up] = [up, up.up]) {
    if (up.operator === "typeof" || up.test || up.type === "LogicalExpression") return true;
  }
  return false;
}
