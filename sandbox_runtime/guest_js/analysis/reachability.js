const MAX_UNGUARDED = 50_000;

/** The lines outside of any `try` and `.catch(...)`, at top level or in a function that is called there. */
function unguardedLines(names, lineOf) {
  const functions = new Map(); // named functions by name
  for (const node of names.all(...FUNCTIONS)) {
    const name = node.id?.name ?? node.up.id?.name ?? (node.up.key && node.up.value === node ? keyOf(node.up) : undefined);
    if (name === undefined) continue;
    node.unit = name;
    (functions.get(name) ?? functions.set(name, []).get(name)).push(node);
  }
  const guarded = names.all("TryStatement").filter((node) => node.handler).flatMap((node) => [node.block, node.handler]);
  for (const node of names.all("CallExpression")) {
    const name = node.callee.type === "MemberExpression" ? keyOf(node.callee) : "";
    if (name === "catch" || name === "allSettled" || (name === "then" && node.arguments.length > 1)) guarded.push(node);
  }
  for (const node of guarded) node.unit = "";
  const mentioned = new Map(); // the names that each function reads, and the script itself
  const units = functions.size ? names.all("Identifier", "MemberExpression") : [];
  for (const node of units) {
    const name = node.type === "Identifier" ? node.isRead && node.name : keyOf(node);
    if (!functions.has(name)) continue;
    let unit = node.up;
    while (unit.unit === undefined && unit.up) unit = unit.up;
    (mentioned.get(unit) ?? mentioned.set(unit, new Set()).get(unit)).add(name);
  }
  const todo = [names.tree], left = new Set([...functions.values()].flat());
  while (todo.length) {
    for (const name of mentioned.get(todo.pop()) ?? []) {
      for (const each of functions.get(name)) if (left.delete(each)) todo.push(each);
    }
  }
  const lines = new Set(Array.from({ length: Math.min(lineOf(names.tree.end), MAX_UNGUARDED) }, (_, i) => i + 1));
  for (const { start, end } of [...guarded, ...left]) {
    for (let line = lineOf(start); line <= lineOf(end); line++) lines.delete(line);
  }
  return lines;
}
