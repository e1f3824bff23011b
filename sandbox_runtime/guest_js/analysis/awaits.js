// Inserts missing awaits. As in guest/analysis/awaits.py, a call gets its `await` if every use of its value is known and uses it
// as data. If a use may await it, the script is not changed.

const MAX_DEPTH = 4;
const OF_ARRAYS = words("map filter forEach reduce find some every slice sort flatMap");
const PROMISES = words("Promise.all Promise.allSettled Promise.any Promise.race");
const WAITING = words("then catch finally");
const READERS = /^(?:console\.\w+|JSON\.\w+|String|Number|Boolean|parseInt|parseFloat|Math\.\w+|is\w+)$/;
const OPENERS = /^(?:Object\.\w+|Array\.(?:from|isArray))$/; // they may give what is in a value
const DATA = "data", AWAITED = "awaited"; // how the value of a call is used

/** A call whose promise nothing awaits, with the text that awaits it. */
function forgottenCalls(names) {
  const calls = new Map();
  for (const node of names.all("CallExpression")) {
    const { callee, arguments: given } = node;
    const name = names.awaitable(callee);
    const isOwn = !name && (callee.type === "Identifier" ? names.isAsync(callee) : PROMISES.has(dotted(callee)));
    if (name || isOwn) calls.set(node, { node, name: name || dotted(callee), isOwn, depth: 0, opener: "await ", closer: "" });
    else if (callee.type === "MemberExpression" && keyOf(callee) === "map" && given[0] && names.isAsync(given[0])) {
      calls.set(node, { node, name: "the callback of map", isOwn: true, depth: 1, opener: "await Promise.all(", closer: ")" });
    }
  }
  const flow = new Flow(names, calls), found = [];
  const isWaiting = names.all("NewExpression").some(({ callee }) => callee.name === "Promise");
  for (const call of calls.values()) {
    if (call.depth === 0 && call.node.up.type === "AwaitExpression") continue;
    const uses = flow.usesOf(call.node, call.depth);
    if (uses.has(AWAITED)) continue;
    const isCondition = (call.isOwn || call.name === "portal.approve") && call.depth === 0 && isTested(call.node);
    const scope = isCondition ? "a condition" : syncScope(call.node);
    // What a function only starts may be waited for by a promise that the script makes itself.
    const isStarted = isWaiting && call.isOwn && call.node.up.type === "ExpressionStatement";
    found.push({ ...call, isUsed: uses.has(DATA) && !(scope && isStarted), scope });
  }
  return found;
}

/** Follows the values of calls through expressions and plain variables. */
class Flow {
  constructor(names, calls) {
    Object.assign(this, { names, calls, known: new Map() });
  }

  usesOf(node, depth) {
    const uses = new Set();
    for (const use of this.follow(node, depth)) {
      if (typeof use === "string") uses.add(use);
      else for (const each of this.usesOfName(use)) uses.add(each);
    }
    return uses;
  }

  usesOfName([name, depth]) {
    const key = `${depth} ${name}`;
    if (!this.known.has(key)) {
      const uses = new Set();
      this.known.set(key, uses); // ends the recursion of `a = b; b = a`
      for (const load of this.names.loads.get(name) ?? []) for (const use of this.usesOf(load, depth)) uses.add(use);
    }
    return this.known.get(key);
  }

  /** How a value is used that is `depth` containers deep in an expression: DATA, AWAITED, or `[name, depth]`. */
  *follow(node, depth) {
    for (let child = node, up = node.up; depth <= MAX_DEPTH; child = up, up = up.up) {
      switch (up.type) {
        case "ChainExpression": case "SequenceExpression": case "ParenthesizedExpression": continue;
        case "AwaitExpression":
          if (!depth) return yield AWAITED;
          continue; // `await [git.log({})]` waits for nothing
        case "ConditionalExpression":
          if (child === up.test) return yield DATA;
          continue;
        case "LogicalExpression":
          if (child === up.left && up.operator !== "??" && !depth) return yield DATA;
          continue;
        case "ArrayExpression": depth++; continue;
        case "Property": depth++; up = up.up; continue;
        case "SpreadElement":
          if (!depth) return yield DATA;
          depth--;
          continue;
        case "AssignmentExpression":
          yield* stored(up.left, depth);
          if (up.up.type === "ExpressionStatement") return;
          continue;
        case "VariableDeclarator": return yield* stored(up.id, depth);
        case "ForOfStatement": case "ForInStatement":
          if (child !== up.right || up.await) return yield AWAITED;
          return depth ? yield* stored(up.left.declarations?.[0].id ?? up.left, depth - 1) : yield DATA;
        case "MemberExpression":
          if (child === up.property || (!depth && !WAITING.has(keyOf(up)))) return yield DATA;
          if (depth && up.computed) { depth--; continue; }
          return yield this.ofItems(up, depth) ? DATA : AWAITED;
        case "CallExpression": case "NewExpression":
          return yield this.reads(up, child, depth) ? DATA : AWAITED;
        case "ReturnStatement": case "ArrowFunctionExpression": case "ExpressionStatement":
          return yield this.end(up, depth);
        case "TemplateLiteral": case "BinaryExpression": case "IfStatement": case "WhileStatement": case "DoWhileStatement":
        case "SwitchStatement": case "ForStatement": case "UnaryExpression":
          return yield /^(?:void|typeof)$/.test(up.operator) || up.up.type === "TaggedTemplateExpression" ? AWAITED : DATA;
        default: return yield AWAITED;
      }
    }
    yield AWAITED;
  }

  /** The end of a statement, or of a function: the script itself awaits its value. */
  end(node, depth) {
    if (node.type === "ExpressionStatement") return node.isValue && !depth ? AWAITED : DATA;
    const isScript = node.type === "ReturnStatement" && node.scope.node.type === "Program";
    return isScript && depth ? DATA : AWAITED;
  }

  /** Whether a method of an array of promises, like `filter(i => i.open)`, uses them as data. */
  ofItems(member, depth) {
    const call = member.up.type === "CallExpression" && member.up.callee === member ? member.up : null;
    const [callback] = call?.arguments ?? [];
    if (depth !== 1 || !call || !OF_ARRAYS.has(keyOf(member)) || !callback || !FUNCTIONS.has(callback.type)) return false;
    const waits = (node) => node.type === "AwaitExpression" || node.type === "CallExpression" || WAITING.has(node.name);
    return !callback.async && !walk(callback.body).some(waits);
  }

  /** Whether a call uses an argument, or the called value, as data. */
  reads(call, child, depth) {
    if (this.calls.get(call)?.isOwn === false) return true;
    const name = dotted(call.callee);
    return child === call.callee ? !depth : READERS.test(name) || (!depth && OPENERS.test(name));
  }
}

/** The names to which a value is assigned. */
function* stored(target, depth) {
  if (target.type === "Identifier") yield [target.name, depth];
  else if (target.type === "ObjectPattern" && !depth) yield DATA;
  else if (target.type === "ArrayPattern") {
    if (!depth) yield DATA;
    else for (const each of target.elements) if (each) yield* stored(each, depth - 1);
  } else yield AWAITED;
}

const dotted = (node) => node.type === "Identifier" ? node.name
  : node.type === "MemberExpression" && !node.computed ? `${dotted(node.object)}.${node.property.name}` : "";

/** Whether a value is a condition right where it is created. */
function isTested(node) {
  let child = node, { up } = node;
  while (/^(?:Logical|Unary|Binary)Expression$/.test(up.type)) [child, up] = [up, up.up];
  return child === up.test;
}

/** The scope around a call that allows no `await`; "" if one is allowed. */
function syncScope(node) {
  for (let child = node, { up } = node; up; [child, up] = [up, up.up]) {
    if (up.type === "PropertyDefinition" || up.type === "StaticBlock") return "a class body";
    if (!FUNCTIONS.has(up.type)) continue;
    if (up.params.includes(child)) return "a default value";
    if (up.async) return "";
    const name = up.id ?? up.up.key ?? up.up.id;
    return name?.name ? `\`${name.name}\`` : "a function";
  }
  return "";
}

function insertAwaits(text, calls, edits) {
  for (const { node, opener, closer } of calls) {
    const { up } = node;
    const isAlone = /^(?:VariableDeclarator|ReturnStatement|ExpressionStatement|Property|ArrayExpression|TemplateLiteral|Spread|ForOf)/.test(up.type)
      || up.right === node && up.type === "AssignmentExpression" || (up.arguments ?? []).includes(node);
    const isBare = isAlone || closer !== "";
    edits.wrap(node, isBare ? opener : `(${opener}`, isBare ? closer : `${closer})`);
    // The line before may end without a semicolon.
    if (!isBare && startsStatement(node) && !";{}".includes(text[lastBefore(text, node.start)] ?? ";")) edits.wrap({ start: node.start, end: text.length + 1 }, ";", "");
  }
}

function startsStatement(node) {
  let { up } = node;
  while (up && up.start === node.start && up.type !== "ExpressionStatement") ({ up } = up);
  return up?.type === "ExpressionStatement" && up.start === node.start;
}
