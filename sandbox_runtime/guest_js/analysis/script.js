// One script: `prepare` is what the library calls.

const MAX_LINES = 10;

function prepare(given, namespaceNames, takenNames) {
  const known = new Set(takenNames), namespaces = new Set(namespaceNames.filter((name) => !known.has(name)));
  const original = given.replace(/^\uFEFF/, "").replace(/\r\n?/g, "\n").replace(/^#!.*/, blank);
  const { text, tree, notices } = parse(original), edits = new Edits();
  const assigned = returnValue(text, tree, edits, notices);
  const kept = [...keepGlobals(text, tree, edits)];
  const facts = { source: null, names: [], notices, uses: [], problems: [], unguarded_lines: [] };
  if (/[(`.=]|import|\d{16}/.test(text)) {
    const names = new Names(tree, namespaces, known, new Set(namespaceNames));
    const forgotten = forgottenCalls(names), inserted = forgotten.filter((call) => !call.scope);
    const usage = new Usage(text, names, forgotten);
    insertAwaits(text, inserted, edits);
    const lines = [...new Set(inserted.map((call) => usage.lineOf(call.node.start)))].sort((a, b) => a - b);
    const more = lines.length > MAX_LINES ? ", …" : "";
    if (lines.length) notices.push(`\`await\` was inserted: line ${lines.slice(0, MAX_LINES).join(", ")}${more}`);
    repair(text, names, edits, notices);
    facts.names = mentioned(names, namespaceNames);
    Object.assign(facts, { uses: usage.uses, problems: usage.problems, unguarded_lines: [...usage.lines].sort((a, b) => a - b) });
  }
  const source = edits.apply(text, false), body = edits.apply(text, true);
  facts.source = source === given ? null : source;
  const run = `${kept.length ? `var ${kept.join(", ")}; ` : ""}await (async () => {${body}\n})()`;
  return { run, facts, assigned };
}

/** The namespaces that the code may use, including in strings if it can access them so. */
function mentioned(names, namespaceNames) {
  const found = new Set();
  for (const { name } of names.all("Identifier")) found.add(name);
  for (const meant of names.renamed.values()) found.add(meant.split(".")[0]);
  const isDynamic = [TOOLS, "globalThis", "eval", "Function"].some((name) => found.has(name));
  const add = (value) => { for (const word of String(value).match(/\w+/g) ?? []) found.add(word); };
  for (const { value, up } of names.all("Literal")) if (isDynamic || /^(?:Import|Call)/.test(up.type)) add(value);
  for (const { value } of isDynamic ? names.all("TemplateElement") : []) add(value.cooked);
  const isMentioned = (name) => found.has(name) && (found.has(TOOLS) || names.namespaces.has(name)); // `crypto` alone is no namespace
  return namespaceNames.filter(isMentioned).sort();
}

return {
  prepare(text, namespaces, taken) {
    try {
      return prepare(text, namespaces, taken);
    } catch (error) {
      return { error: describe(error, text) };
    }
  },
};
