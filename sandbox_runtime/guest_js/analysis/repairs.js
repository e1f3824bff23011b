// Repairs of what models write, with notices.

const isLossy = ({ raw, value }) => /^\d{16,}$/.test(raw) && BigInt(raw) !== BigInt(value);

/** Repairs imports, Python's keyword arguments, and integers that would lose digits. */
function repair(text, names, edits, notices) {
  for (const node of names.all("ImportDeclaration")) {
    const path = names.modulePath(node.source.value), bound = [];
    for (const { type, local, imported } of path ? node.specifiers : []) {
      const meant = type === "ImportSpecifier" && !["default", path.at(-1)].includes(nameOf(imported)) ? [...path, nameOf(imported)] : path;
      const isGlobal = local.name === meant.at(-1) && (meant.length === 1 || (meant.length === 2 && names.namespaces.has(local.name)));
      if (!isGlobal) bound.push(`const ${local.name} = ${meant.join(".")};`);
    }
    edits.replace(node.start, node.end, `;${bound.join(" ")}${text.slice(node.start, node.end).replace(/[^\n]/g, "")}`);
  }
  for (const node of names.all("ExportAllDeclaration")) edits.replace(node.start, node.end, blank(text.slice(node.start, node.end)));
  for (const node of names.all("CallExpression", "ImportExpression")) {
    const path = isRequire(node) || node.type === "ImportExpression" ? names.path(node) : null;
    if (path) edits.replace(node.start, node.end, path.join("."));
    if (node.callee && names.awaitable(node.callee) && isKeywords(node.arguments)) {
      for (const { left, right } of node.arguments) {
        const at = left.end + text.slice(left.end, right.start).indexOf("=");
        edits.replace(at, at + 1, ":");
      }
      edits.wrap({ start: node.arguments[0].start, end: node.arguments.at(-1).end }, "{", "}");
      notices.push("`name=value` was read as `{name: value}`");
    }
  }
  for (const node of names.all("Literal")) {
    if (typeof node.value !== "number" || !isLossy(node) || node.up.key === node) continue;
    edits.wrap(node, "", "n");
    notices.push(`${node.raw} is a BigInt, \`${node.raw}n\`: a number would lose digits`);
  }
  for (const [node, meant] of names.renamed) {
    edits.replace(node.start, node.end, node.up.shorthand ? `${node.name}: ${meant}` : meant);
    notices.push(`\`${node.name}\` means ${meant}`);
  }
}

const isKeywords = (given) => given.length > 0 && given.every((each) => each.type === "AssignmentExpression" && each.left.type === "Identifier");

/** The texts that a script may mean, with the same lines, each with a notice. */
function* candidates(text) {
  const lines = text.split("\n"), fences = [];
  for (const [i, line] of lines.entries()) if (/^[ \t]*(?:```|~~~)[\w ]*$/.test(line) && fences.length < 3) fences.push(i);
  const [first, last] = fences;
  const isText = lines.slice(0, first).join("\n").replace(/`[\w .:/-]+`/g, "").includes("`"); // which must not run
  const inside = fences.length === 2 && !isText ? lines.map((line, i) => first < i && i < last ? line : "").join("\n") : "";
  const isFenced = inside && !lines.slice(0, first).join("").trim(); // as JavaScript, three backticks are a template
  if (!isFenced) yield [text, ""];
  if (inside) yield [inside, "only the code in the Markdown fence was run"];
  const at = text.lastIndexOf("\n{") + 1, end = lastBefore(text, text.length, /[\s;]/) + 1;
  if (text[at] === "{" && text[end - 1] === "}") {
    yield [`${text.slice(0, at)};(${text.slice(at, end)})${text.slice(end)}`, "the braces at the end were read as an object"];
  }
}

const AS_IT_IS = (text) => text, WITHOUT_TYPES = (text) => new Eraser(text).result();
const TYPED_CALL = /[\w$]<[\w$\s.,:|&"'<>{}[\]]{1,200}>\s*[(`]/; // `new Set<string>(a)`: for JavaScript two comparisons

function parse(text) {
  let worst = null;
  for (const [candidate, notice] of candidates(text)) {
    const readings = [AS_IT_IS, WITHOUT_TYPES];
    for (const reading of TYPED_CALL.test(candidate) ? readings.reverse() : readings) {
      try {
        const plain = reading(candidate);
        return { text: plain, tree: acornNamespace.parse(plain, OPTIONS), notices: notice ? [notice] : [] };
      } catch (error) {
        if (!(error instanceof SyntaxError)) throw error;
        if (!worst || error instanceof ScriptError || (error.pos > worst.pos && !(worst instanceof ScriptError))) worst = error;
      }
    }
  }
  throw worst;
}
