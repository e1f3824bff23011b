// What the names of a script mean: which are the library's, and which the script binds.

const TOOLS = "tools"; // the object with all namespaces
const MOST_PARTS = { [TOOLS]: 3, portal: 2 }; // of a path
const PORTAL = words("approve describe event event_url fetch get_prompt prompts read_resource recall resources " +
  "search search_text sleep eventUrl getPrompt readResource searchText");
const OF_PORTAL = words("Response ToolError blocks emit env run text");

/** The tree of a script with the parent and the scope of each node; what its names mean. A scope is a function's. */
class Names {
  constructor(tree, namespaces, known, every) {
    Object.assign(this, { tree, namespaces, known, every }); // `every` has those namespaces, too, whose bare name is taken
    this.kinds = Object.create(null); // nodes by their type, in the order of the script
    this.top = { up: null, node: tree, names: new Map() };
    this.loads = new Map(); // the reads of each name, wherever it is bound
    this.renamed = new Map(); // names that stand for others: `mcp__git__log` for `git.log`
    tree.scope = this.top;
    const todo = [tree];
    while (todo.length) {
      const node = todo.pop();
      (this.kinds[node.type] ??= []).push(node);
      const scope = FUNCTIONS.has(node.type) ? { up: node.scope, node, names: new Map() } : node.scope;
      const children = (node.children = childrenOf(node));
      for (let i = children.length; i--;) {
        children[i].up = node;
        children[i].scope = scope;
        todo.push(children[i]);
      }
      this.declare(node, scope);
    }
    for (const { operator, left, right } of this.all("AssignmentExpression")) {
      for (const name of namesIn(left)) this.refuseConstant(name, left);
      if (left.type === "Identifier") this.bind(this.owner(left) ?? this.top, left, operator === "=" ? { value: right } : {});
      else this.bindPattern(left, null, [], (name) => this.owner(name) ?? this.top);
    }
    for (const { left } of this.all("ForOfStatement", "ForInStatement")) {
      if (left.type !== "VariableDeclaration") this.bindPattern(left, null, [], (name) => this.owner(name) ?? this.top);
    }
    for (const { argument } of this.all("UpdateExpression")) {
      if (argument.type !== "Identifier") continue;
      this.refuseConstant(argument.name, argument);
      this.owner(argument)?.names.get(argument.name).push({});
    }
    for (const node of this.all("Identifier")) {
      if ((node.isRead = isRead(node))) (this.loads.get(node.name) ?? this.loads.set(node.name, []).get(node.name)).push(node);
    }
  }

  /** Constants of the top level become globals, which anything can assign to: so it is refused here. */
  refuseConstant(name, node) {
    const owner = this.owner({ name, scope: node.scope });
    const bound = owner === this.top ? owner.names.get(name) : [];
    if (bound.length === 1 && bound[0].isConstant) { // with more, a block may have a variable of that name
      throw new ScriptError(`assignment to the constant \`${name}\`: declare it with let`, node.start);
    }
  }

  all(...types) {
    return types.length > 1 ? types.flatMap((type) => this.kinds[type] ?? []) : this.kinds[types[0]] ?? [];
  }

  declare(node, scope) {
    const { type } = node;
    if (FUNCTIONS.has(type)) {
      if (node.id) this.bind(type === "FunctionDeclaration" ? node.scope : scope, node.id, { value: node });
      for (const each of node.params) this.bindPattern(each, null, [], () => scope);
    } else if (type === "VariableDeclarator") {
      const isLoop = node.up.up.type.startsWith("For") && !node.init;
      this.bindPattern(node.id, isLoop ? null : node.init, [], () => scope);
      if (node.up.kind === "const" && node.up.up === this.tree) {
        for (const name of namesIn(node.id)) scope.names.get(name)[0].isConstant = true;
      }
    } else if (type.startsWith("Class") && node.id) this.bind(scope, node.id, {});
    else if (type === "CatchClause" && node.param) this.bindPattern(node.param, null, [], () => scope);
    else if (type === "ImportDeclaration") {
      const path = this.modulePath(node.source.value);
      for (const { local, imported } of node.specifiers) {
        const name = imported && nameOf(imported);
        this.bind(scope, local, { path: path && (name && name !== "default" && name !== path.at(-1) ? [...path, name] : path) });
      }
    }
  }

  bindPattern(node, value, keys, scopeOf) {
    if (!node) return;
    if (node.type === "Identifier") this.bind(scopeOf(node), node, value ? { value, keys } : {});
    else if (node.type === "AssignmentPattern") this.bindPattern(node.left, null, keys, scopeOf);
    else if (node.type === "RestElement") this.bindPattern(node.argument, null, keys, scopeOf);
    else if (node.type === "ArrayPattern") for (const each of node.elements) this.bindPattern(each, null, keys, scopeOf);
    else if (node.type === "ObjectPattern") for (const each of node.properties) {
      const key = each.type === "Property" ? keyOf(each) : undefined;
      this.bindPattern(each.value ?? each.argument, key === undefined ? null : value, [...keys, key], scopeOf);
    }
  }

  bind(scope, node, binding) {
    node.isBinding = true;
    (scope.names.get(node.name) ?? scope.names.set(node.name, []).get(node.name)).push(binding);
  }

  owner(node) {
    for (let scope = node.scope; scope; scope = scope.up) if (scope.names.has(node.name)) return scope;
    return null;
  }

  bindings(node) {
    return this.owner(node)?.names.get(node.name) ?? [];
  }

  isFree(node) {
    return !this.known.has(node.name) && !this.owner(node);
  }

  /** The value of a name that is bound exactly once. */
  onlyValue(node) {
    const [binding, ...more] = this.bindings(node);
    return binding?.value && !more.length && !binding.keys?.length && !this.known.has(node.name) ? binding.value : null;
  }

  /** `["tools", namespace, function]`, a prefix of it, or `["portal", name]`; null for anything else. */
  path(node) {
    if (node.path === undefined) {
      node.path = null; // ends the recursion of `a = b; b = a`
      node.path = this.pathOf(node);
    }
    return node.path;
  }

  pathOf(node) {
    if (node.type === "MemberExpression") {
      const key = keyOf(node), path = key === undefined ? null : this.path(node.object);
      return path && path.length < MOST_PARTS[path[0]] ? [...path, key] : null;
    }
    if (node.type === "ChainExpression") return this.path(node.expression);
    if (node.type === "AwaitExpression" && node.argument.type === "ImportExpression") return this.path(node.argument);
    if (node.type === "ImportExpression") return this.modulePath(literalOf(node.source));
    if (isRequire(node)) return this.modulePath(literalOf(node.arguments[0]));
    if (node.type !== "Identifier") return null;
    const bindings = this.bindings(node);
    if (bindings.length) {
      const paths = bindings.map((each) => {
        const path = each.value ? this.path(each.value) : each.path;
        return path ? [...path, ...(each.keys ?? [])] : null;
      });
      return paths[0] && paths[0].length <= MOST_PARTS[paths[0][0]] && paths.every((path) => path && String(path) === String(paths[0])) ? paths[0] : null;
    }
    if (this.known.has(node.name)) return null;
    const { name } = node;
    if (name === TOOLS || name === "portal") return [name];
    if (this.namespaces.has(name)) return [TOOLS, name];
    const [start, namespace, ...rest] = name.split("__"); // other clients' names: `mcp__git__git_log`
    if (start !== "mcp" || !rest.length || !this.namespaces.has(namespace)) return this.suffixed(node);
    this.renamed.set(node, `${namespace}.${rest.join("__")}`);
    return [TOOLS, namespace, rest.join("__")];
  }

  /** The namespace `time_` behind `time`, which only Python has to call so. */
  suffixed(node) {
    const name = `${node.name}_`;
    if (!this.namespaces.has(name) || !node.isRead || node.name in globalThis) return null;
    this.renamed.set(node, name);
    return [TOOLS, name];
  }

  /** What a module's name means: "tools", "git", "./servers/git/index.js", "tools/git". */
  modulePath(module) {
    const parts = String(module).replace(/(?:\/index)?\.[cm]?[jt]sx?$/, "").split("/").filter((part) => part && !part.startsWith("."));
    const last = (parts.at(-1) ?? "").replace(/-/g, "_");
    if (this.every.has(last)) return [TOOLS, last];
    const meant = parts.at(-2) ?? "";
    if (this.every.has(meant) && parts.length > 1) return [TOOLS, meant, last];
    return /^(?:tools|servers)$/.test(last) ? [TOOLS] : last === "portal" ? ["portal"] : null;
  }

  /** The name of a function of the library or of `portal` whose promise an expression calls for; or "". */
  awaitable(node) {
    const path = this.path(node);
    if (path?.[0] === "portal") return path.length === 2 && PORTAL.has(path[1]) ? path.join(".") : "";
    return path?.length === 3 ? path.slice(1).join(".") : "";
  }

  /** Whether an expression means a function of this script that returns a promise. */
  isAsync(node) {
    const meant = node.type === "Identifier" ? this.onlyValue(node) : node;
    if (!meant || !FUNCTIONS.has(meant.type) || meant.generator) return false;
    const returned = meant.body.type === "BlockStatement" ? meant.body.body.at(-1)?.argument : meant.body;
    return meant.async || (returned?.type === "CallExpression" && this.awaitable(returned.callee) !== "");
  }
}

const isRequire = (node) => node.type === "CallExpression" && node.callee.name === "require" && node.arguments.length === 1;

/** Whether an identifier is read, and is not only a key, a label, or where a name is bound. */
function isRead(node) {
  const { up } = node;
  if (node.isBinding && up.type !== "AssignmentExpression") return false;
  if (up.type === "AssignmentExpression" && up.left === node) return false;
  if (up.type === "MemberExpression") return up.object === node || up.computed;
  if (up.type === "Property" || up.type === "MethodDefinition" || up.type === "PropertyDefinition") return up.value === node || up.computed;
  return !NOT_READING.has(up.type);
}
const NOT_READING = words("LabeledStatement BreakStatement ContinueStatement ImportSpecifier ImportDefaultSpecifier " +
  "ImportNamespaceSpecifier ExportSpecifier MetaProperty");

const isStored = (node) => node.up.type === "AssignmentExpression" && node.up.left === node;
