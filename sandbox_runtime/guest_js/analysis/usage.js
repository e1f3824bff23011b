// The facts for the check, in the shapes of guest/analysis/usage.py.

const UNKNOWN = "\0", FROM_RESULT = "\x01", SPREAD = "**"; // result.py has the host's constants
const MAX_USES = 1000, MAX_TEXT = 10_000, MAX_LITERALS = 10_000, MAX_PARTS = 1000;
const PROVIDED = words("console setTimeout clearTimeout setInterval clearInterval setImmediate clearImmediate queueMicrotask " +
  "structuredClone ToolError Response URLSearchParams TextEncoder TextDecoder atob btoa crypto performance arguments undefined super");

class Usage {
  constructor(text, names, forgotten) {
    Object.assign(this, { names, literals: MAX_LITERALS });
    this.lineOf = lineCounter(text);
    this.inserted = new Set(forgotten.filter((call) => !call.scope).map((call) => call.node));
    this.lines = unguardedLines(names, this.lineOf);
    const probed = this.probed();
    const uses = [...this.mentions(), ...this.unboundCalls()].filter((use) => !probed.has(use[1]) && !(use[0] && probed.has(use[0])));
    this.uses = uses.sort((a, b) => a[2] - b[2]).slice(0, MAX_USES);
    const blocked = forgotten.filter((call) => call.scope && call.isUsed).map((call) => this.blocked(call));
    const problems = [...blocked, ...this.misuses(), ...this.results(), ...absences(names, this.lines, this.lineOf)];
    this.problems = problems.sort((a, b) => a[0] - b[0]).slice(0, MAX_USES);
  }

  blocked({ node, name, scope, isOwn }) {
    const line = this.lineOf(node.start);
    if (scope === "a condition") {
      const hint = `Write \`await ${name}(...)\`.`;
      return [line, "not_awaited", `${name}(...) is never awaited, so this condition is always true`, hint];
    }
    const hint = "Make it an `async` function, and await its calls; `await Promise.all(items.map(async (item) => ...))` for a list.";
    return [line, "not_awaited", `${name}(...) is never awaited, and no \`await\` is inserted in ${scope}`, hint];
  }

  *mentions() {
    for (const node of this.names.all("Identifier", "MemberExpression")) {
      if (node.type === "Identifier" && !node.isRead) continue;
      const path = this.names.path(node);
      if (path?.length === 3 && !isStored(node)) yield this.use(node, path[1], path[2]);
      else if (this.isMissing(path)) yield this.use(node, path[1], "");
    }
    for (const { local } of this.names.all("ImportSpecifier", "ImportDefaultSpecifier", "ImportNamespaceSpecifier")) {
      const path = this.names.path(local);
      if (path?.length === 3 || this.isMissing(path)) yield this.use(local, path[1], path[2] ?? "");
    }
  }

  isMissing(path) {
    return path?.length === 2 && path[0] === TOOLS && !this.names.every.has(path[1]);
  }

  *unboundCalls() {
    for (const { callee } of this.names.all("CallExpression")) {
      let root = callee;
      while (root.type === "MemberExpression") root = root.object;
      const isUnknown = root.type === "Identifier" && !this.names.path(root) && !this.names.renamed.has(root) && this.names.isFree(root)
        && !(root.name in globalThis) && !PROVIDED.has(root.name) && !Object.hasOwn(ABSENT, root.name) && !Object.hasOwn(PYTHON, root.name);
      const key = callee.type === "MemberExpression" ? keyOf(callee) : root.name;
      if (isUnknown && key !== undefined) yield this.use(callee, root === callee ? "" : root.name, key);
    }
  }

  use(node, namespace, name) {
    const call = node.up.type === "CallExpression" && node.up.callee === node ? node.up : null;
    const { start, end } = call ?? node;
    return [namespace, name, this.lineOf(start), this.lineOf(end), call ? this.given(call.arguments) : null];
  }

  /** `f({a: 1})` gives names; anything else is positional. */
  given(values) {
    if (isKeywords(values)) return Object.fromEntries(values.map(({ left, right }) => [left.name, this.value(right)]));
    const only = values.length === 1 ? this.resolved(values[0]) : null;
    if (only?.type === "ObjectExpression") return this.members(only);
    if (only && !/^(?:Literal|Template|Array|Binary|Unary|Arrow|Function|Class)/.test(only.type)) return { [SPREAD]: UNKNOWN };
    return Object.fromEntries(values.map((each, i) => each.type === "SpreadElement" ? [SPREAD, UNKNOWN] : [`*${i}`, this.value(each)]));
  }

  /** The object behind a name that is used for nothing else. */
  resolved(node) {
    const value = node.type === "Identifier" ? this.names.onlyValue(node) : null;
    const isPassed = ({ up }) => up.type === "SpreadElement" || (up.type === "CallExpression" && this.names.awaitable(up.callee) !== "");
    return value?.type === "ObjectExpression" && this.names.loads.get(node.name).every(isPassed) ? value : node;
  }

  members(node) {
    const given = {};
    for (const each of node.properties) {
      const key = each.type === "Property" ? keyOf(each) : undefined;
      const spread = each.type === "SpreadElement" ? this.resolved(each.argument) : null;
      if (spread?.type === "ObjectExpression") Object.assign(given, this.members(spread));
      else if (key === undefined || key === "__proto__") given[SPREAD] = UNKNOWN;
      else if (each.value.name !== "undefined") given[key] = each.kind === "init" ? this.value(each.value) : UNKNOWN;
    }
    return given;
  }

  value(node) {
    if (--this.literals < 0) return FROM_RESULT;
    if (node.type === "Literal" && !node.regex) {
      if (node.bigint) return Number.isSafeInteger(Number(node.bigint)) ? Number(node.bigint) : UNKNOWN;
      const { value } = node;
      if (typeof value === "string") return value.length <= MAX_TEXT && value.isWellFormed() ? value : UNKNOWN;
      return typeof value === "number" && (!Number.isFinite(value) || isLossy(node)) ? UNKNOWN : value;
    }
    if (node.type === "TemplateLiteral") return literalOf(node)?.slice(0, MAX_TEXT) ?? this.unknown(node);
    if (node.type === "UnaryExpression" && node.operator === "-") {
      const value = this.value(node.argument);
      return typeof value === "number" ? -value : UNKNOWN;
    }
    if (node.type === "ArrayExpression") {
      return node.elements.some((each) => !each || each.type === "SpreadElement") ? UNKNOWN : node.elements.map((each) => this.value(each));
    }
    if (node.type === "ObjectExpression") {
      const given = this.members(node);
      return SPREAD in given ? UNKNOWN : given;
    }
    return this.unknown(node);
  }

  unknown(node) {
    return isFromResult(walk(node, MAX_PARTS), this.names, (this.tainted ??= taintedNames(this.names))) ? FROM_RESULT : UNKNOWN;
  }

  /** Functions and namespaces that the script tests for first: `if (git.search)`, `git.search?.()`, `"git" in tools`. */
  probed() {
    const names = new Set();
    for (const node of this.names.all("MemberExpression", "Identifier")) {
      const { up } = node;
      const isProbe = up.test === node || up.operator === "typeof" || (up.type === "LogicalExpression" && up.left === node)
        || (up.optional && (up.callee === node || up.object === node));
      if (isProbe) names.add(node.name ?? keyOf(node));
    }
    for (const { operator, left } of this.names.all("BinaryExpression")) if (operator === "in") names.add(literalOf(left));
    return names;
  }

  *misuses() {
    const { names } = this;
    for (const { argument, start } of names.all("AwaitExpression")) {
      const path = names.path(argument);
      if (path?.length !== 3) continue;
      const name = path.slice(1).join(".");
      yield [this.lineOf(start), "not_called", `${name} is awaited, but not called`, `Write ${name}({...}).`];
    }
    for (const { callee, start, arguments: [first] } of names.all("CallExpression")) {
      const path = names.path(callee);
      if (path?.length === 2 && path[0] === TOOLS && names.namespaces.has(path[1])) {
        yield [this.lineOf(start), "not_a_function", `${path[1]} is a namespace, not a function`, "Call one of its functions."];
      }
      if (callee.type === "MemberExpression" && keyOf(callee) === "forEach" && first && names.isAsync(first)) {
        const hint = "Write `for (const item of items) await ...`, or `await Promise.all(items.map(async (item) => ...))`.";
        yield [this.lineOf(start), "not_awaited", "forEach does not wait for its callback", hint];
      }
    }
  }

  /** Fields that a result may not have. The host knows what is declared. */
  *results() {
    const taken = this.names.all("ForOfStatement").map((node) => [node.right, "is not iterable"]);
    for (const node of this.names.all("MemberExpression")) {
      const key = keyOf(node);
      if (key !== undefined && !(key in Object.prototype)) taken.push([node.object, `declares no field '${key}'`]);
    }
    for (const [node, what] of taken) {
      const name = this.resultOf(node);
      const message = what.startsWith("is") ? `what ${name} returns ${what}` : `${name} ${what}`;
      if (name) yield [this.lineOf(node.end), "keys_only", message, "", name, node.name ?? ""];
    }
  }

  /** The function that certainly gave a value, directly or through a name bound once; or "". */
  resultOf(node) {
    let value = (node.type === "Identifier" && this.names.onlyValue(node)) || node;
    const isAwaited = value.type === "AwaitExpression" || this.inserted.has(value);
    while (value.type === "AwaitExpression" || value.type === "ChainExpression") value = value.argument ?? value.expression;
    const path = isAwaited && value.type === "CallExpression" ? this.names.path(value.callee) : null;
    return path?.length === 3 ? path.slice(1).join(".") : "";
  }
}

/** The names whose values may come from results of library calls, or from a caller. */
function taintedNames(names) {
  const flows = new Map(), tainted = new Set();
  const flow = (value, targets) => {
    const parts = walk(value, MAX_PARTS);
    if (isFromResult(parts, names, tainted)) for (const each of targets) tainted.add(each);
    for (const { type, name } of parts) {
      if (type === "Identifier") (flows.get(name) ?? flows.set(name, []).get(name)).push(...targets);
    }
  };
  for (const { id, init } of names.all("VariableDeclarator")) if (init) flow(init, namesIn(id));
  for (const { left, right } of names.all("AssignmentExpression")) flow(right, namesIn(left));
  for (const { left, right } of names.all("ForOfStatement")) flow(right, namesIn(left.declarations?.[0].id ?? left));
  for (const { params } of names.all(...FUNCTIONS)) for (const name of params.flatMap(namesIn)) tainted.add(name);
  const todo = [...tainted];
  while (todo.length) {
    for (const each of flows.get(todo.pop()) ?? []) if (!tainted.has(each)) todo.push(each), tainted.add(each);
  }
  return tainted;
}

/** Whether an expression of these nodes may come from a result; a large one counts as one that may. */
function isFromResult(parts, names, tainted) {
  return parts.length === MAX_PARTS || parts.some((part) => part.type === "AwaitExpression"
    || (part.type === "Identifier" && tainted.has(part.name))
    || (part.type === "CallExpression" && names.awaitable(part.callee) !== ""));
}
