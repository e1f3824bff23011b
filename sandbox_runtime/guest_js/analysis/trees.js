// The parsers, and trees of scripts.
//
// The files of this folder are the parts of one function, with `acornNamespace` and `tsPlugin` of the vendored parsers. They
// parse a script, tell the facts about it and rewrite it: what guest/script.py and guest/analysis do for Python. All texts
// keep their lines: `source` is the script with its repairs, `run` also returns its value and keeps the names of a session.

const OPTIONS = {
  ecmaVersion: "latest", sourceType: "script", allowImportExportEverywhere: true,
  allowAwaitOutsideFunction: true, allowReturnOutsideFunction: true,
};
const words = (text) => new Set(text.split(" "));

// What acorn spends the most on: it compares each word with a regular expression of all keywords, and reads it by code points.
const plain = acornNamespace.Parser.prototype, { readWord1 } = plain;
const { keywords, ...reserved } = new acornNamespace.Parser(OPTIONS, "");
for (const expression of [keywords, reserved.reservedWords, reserved.reservedWordsStrict, reserved.reservedWordsStrictBind]) {
  const all = new Set(expression.source.slice("^(?:".length, -")$".length).split("|"));
  expression.test = (word) => all.has(word); // all parsers share these objects
}
const IN_WORDS = Uint8Array.from({ length: 128 }, (_, code) => /[\w$]/.test(String.fromCharCode(code)) ? 1 : 0);
plain.readWord1 = function () {
  const { input, pos } = this;
  let at = pos, code = input.charCodeAt(at);
  while (IN_WORDS[code] === 1) code = input.charCodeAt(++at);
  if (code === 92 || code >= 128) return readWord1.call(this); // escapes, and other letters
  this.containsEsc = false;
  this.pos = at;
  return input.slice(pos, at);
};

const FUNCTIONS = words("FunctionDeclaration FunctionExpression ArrowFunctionExpression");

const SCALARS = words("type start end name raw operator prefix kind computed static async generator optional await method shorthand regex up scope children");
const keysOfType = Object.create(null);

/** The nodes right below one. acorn gives all nodes of a type the same keys. */
function childrenOf(node, keys = (keysOfType[node.type] ??= Object.keys(node).filter((key) => !SCALARS.has(key)))) {
  const found = [];
  for (let i = 0; i < keys.length; i++) {
    const value = node[keys[i]];
    if (value === null || typeof value !== "object") continue;
    if (typeof value.type === "string") found.push(value);
    else if (Array.isArray(value)) for (const each of value) if (each?.type) found.push(each);
  }
  return found;
}

/** A node and all below it, in the order of the script; at most `most`. */
function walk(node, most = Infinity) {
  const found = [], todo = [node];
  while (todo.length && found.length < most) {
    const each = todo.pop(), { children } = each;
    found.push(each);
    for (let i = children.length; i--;) todo.push(children[i]);
  }
  return found;
}

const keyOf = (node) => // of a property or a member: its name, or undefined if it is computed
  !node.computed ? nameOf(node.key ?? node.property) : literalOf(node.key ?? node.property);
const nameOf = (node) => node.name ?? (node.type === "Literal" ? String(node.value) : undefined);
const literalOf = (node) => node.type === "Literal" && typeof node.value === "string" ? node.value
  : node.type === "TemplateLiteral" && !node.expressions.length ? node.quasis[0].value.cooked : undefined;
const blank = (text) => text.replace(/[^\n]/g, " ");

/** Edits of a text. Openers of larger nodes come first, their closers last. */
class Edits {
  list = [];
  replace(at, end, text) { this.list.push({ at, end, text, kind: 2, rank: 0 }); }
  wrap(node, before, after, isRun = false) {
    const size = node.end - node.start + (isRun ? 0.5 : 0);
    this.list.push({ at: node.start, end: node.start, text: before, kind: 1, rank: -size, isRun });
    this.list.push({ at: node.end, end: node.end, text: after, kind: 0, rank: size, isRun });
  }
  apply(text, withRun) {
    const edits = this.list.filter((edit) => withRun || !edit.isRun);
    edits.sort((a, b) => a.at - b.at || a.kind - b.kind || a.rank - b.rank);
    const out = [];
    let from = 0;
    for (const edit of edits) {
      if (edit.at < from) continue; // inside of what was replaced
      out.push(text.slice(from, edit.at), edit.text);
      from = edit.end;
    }
    return out.join("") + text.slice(from);
  }
}

/** What is wrong with a script, at a position of its text. */
class ScriptError extends SyntaxError {
  constructor(message, pos) { super(message); this.pos = pos; }
}

/** The index of the last character before a position that is not a space. */
function lastBefore(text, position, space = /\s/) {
  let at = position - 1;
  while (at >= 0 && space.test(text[at])) at--;
  return at;
}

/** The line, from 1, of a position. */
function lineCounter(text) {
  const starts = [0];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  return (position) => {
    let low = 0, high = starts.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (starts[middle] <= position) low = middle;
      else high = middle;
    }
    return low + 1;
  };
}
