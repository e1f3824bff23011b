// Makes a script return its value, and keep its names.

/** Rewrites the end of a script so that it returns its value. Returns the name whose value that is: the one that the
    last statement, or the ends of its blocks, assign. */
function returnValue(text, tree, edits, notices) {
  const statements = tree.body.filter(({ type }) => type !== "EmptyStatement" && type !== "FunctionDeclaration");
  const exported = tree.body.find(({ type }) => type === "ExportDefaultDeclaration");
  for (const node of tree.body.filter(({ type }) => type === "ExportNamedDeclaration")) {
    edits.replace(node.start, node.declaration?.start ?? node.end, blank(text.slice(node.start, node.declaration?.start ?? node.end)));
  }
  if (exported) {
    const { declaration, start } = exported, words = /^export\s+default/.exec(text.slice(start))[0].length;
    const isLast = !statements.includes(exported) || exported === statements.at(-1);
    edits.replace(start, start + words, " ".repeat(words));
    if (declaration.id) edits.wrap(exported, "", `;return await ${declaration.id.name}${isPlainFunction(declaration) ? "()" : ""};`, true);
    else giveBack(exported, declaration, isLast ? "return await (" : "const $default = (");
    if (!isLast && !declaration.id) edits.wrap(tree, "", "\n;return await $default", true);
    return undefined;
  }
  return statements.length ? end(statements.at(-1), true) : undefined;

  /** Return an expression that stands alone in a statement; one that is only a function is called. */
  function giveBack({ start, end }, expression, opener = "return await (") {
    const isUncalled = isPlainFunction(expression);
    if (isUncalled) notices.push("the last expression is a function: it was called");
    const inside = { start, end: text[end - 1] === ";" ? end - 1 : end };
    edits.wrap(inside, `${opener}${isUncalled ? "(" : ""}`, isUncalled ? ")())" : ")", true);
  }

  function end(node, isLast) {
    const { type } = node ?? {};
    if (type === "ExportNamedDeclaration" && node.declaration) return end(node.declaration, isLast);
    if (type === "ExpressionStatement") {
      node.isValue = true;
      const { start, operator, left, argument } = node.expression, isRun = operator === "void" && argument.type === "CallExpression";
      if (isRun) edits.replace(start, start + operator.length, blank(operator)); // `void main()`
      giveBack(node, node.expression);
      return operator && left?.type === "Identifier" && node.expression.type === "AssignmentExpression" ? { name: left.name, isBlock: !isLast } : undefined;
    }
    if (type === "VariableDeclaration") {
      const { id } = node.declarations.at(-1), name = id.name;
      edits.wrap(node, "", `;return await ${name ?? `{${namesIn(id)}}`};`, true);
      return name && { name, isBlock: !isLast };
    }
    if (isLast && type === "BlockStatement" && isObject(node)) {
      notices.push("the braces at the end were read as an object");
      giveBack(node, node);
      return undefined;
    }
    if (type === "BlockStatement") return end(node.body.at(-1), false);
    const blocks = type === "IfStatement" ? [node.consequent, node.alternate] : type === "TryStatement" ? [node.block, node.handler?.body] : [];
    const assigned = blocks.map((each) => end(each, false)).filter(Boolean);
    return assigned.every(({ name }) => name === assigned[0].name) ? assigned[0] : undefined;
  }

  /** Whether a block is meant as an object: `{a, b}`, `{a: 1}`. */
  function isObject({ start, end, body: [first, ...more] }) {
    if (more.length || !/^(?:Labeled|Expression)Statement$/.test(first?.type ?? "LabeledStatement")) return false;
    try {
      return acornNamespace.parseExpressionAt(text.slice(0, end), start, OPTIONS).type === "ObjectExpression";
    } catch {
      return false;
    }
  }
}

const isPlainFunction = (node) => FUNCTIONS.has(node.type) && !node.generator && !node.params.length;

/** The names that a pattern binds. */
function namesIn(pattern) {
  if (!pattern || pattern.type === "Identifier") return pattern ? [pattern.name] : [];
  if (pattern.type === "ObjectPattern") return pattern.properties.flatMap((each) => namesIn(each.value ?? each.argument));
  return pattern.type === "ArrayPattern" ? pattern.elements.flatMap(namesIn) : namesIn(pattern.left ?? pattern.argument);
}

/** Keeps what a script declares as globals: `const {a} = b` becomes `({a} = b)`. Returns the names. */
function keepGlobals(text, tree, edits) {
  const names = new Set();
  for (const statement of tree.body) {
    const node = statement.declaration ?? statement;
    if (node.id === null) continue; // of `export default`
    if (node.type === "FunctionDeclaration") {
      names.add(node.id.name);
      edits.wrap(tree, `globalThis.${node.id.name} = ${node.id.name}; `, "", true);
    } else if (node.type === "ClassDeclaration") {
      names.add(node.id.name);
      edits.wrap(node, `${node.id.name} = `, ";", true);
    } else if (node.type === "VariableDeclaration") {
      edits.list.push({ at: node.start, end: node.start + node.kind.length, text: ";(", kind: 2, rank: 0, isRun: true });
      for (const { id, init, start, end } of node.declarations) {
        for (const name of namesIn(id)) names.add(name);
        if (!init && node.kind !== "var") edits.wrap({ start: end, end }, "", " = undefined", true);
      }
      const { end } = node.declarations.at(-1), rank = end - node.start - 1; // behind what an await adds
      edits.list.push({ at: end, end, text: ");", kind: 0, rank, isRun: true });
    }
  }
  return names;
}
