// Erases the types of a TypeScript script.

const TypeScript = acornNamespace.Parser.extend(tsPlugin());
const TYPE_STATEMENTS = words("TSInterfaceDeclaration TSTypeAliasDeclaration TSDeclareFunction TSIndexSignature");
const TYPE_PARTS = words("TSTypeAnnotation TSTypeParameterDeclaration TSTypeParameterInstantiation");
const REFUSED_TYPES = {
  TSModuleDeclaration: "a namespace does not work here: use an object",
  TSImportEqualsDeclaration: "`import x = ...` does not work here: namespaces need no import",
  TSExportAssignment: "`export =` does not work here: end the script with the value",
};
const STATEMENT = /Statement$|^VariableDeclaration$|^PropertyDefinition$|^Export/;
const SPACES = /(?:\s+|\/\/.*|\/\*[^]*?\*\/)*/y;
const MODIFIER = /\b(?:private|public|protected|readonly|override|abstract|declare)\b/g;

/** Replaces the types of a script by spaces. Enums and parameter properties become code on their own lines. */
class Eraser {
  constructor(text) {
    this.text = text;
    this.chars = text.split("");
    this.written = []; // [index, text, isBehind]: written over a character, or behind it, when all types are erased
  }

  erase(start, end) {
    for (let i = start; i < end; i++) if (this.chars[i] !== "\n") this.chars[i] = " ";
  }

  result() {
    const ends = [], todo = [[TypeScript.parse(this.text, { ...OPTIONS, sourceType: "module", locations: true }), null]];
    while (todo.length) {
      const [node, up] = todo.pop();
      if (STATEMENT.test(node.type) && !up.type.startsWith("For")) ends.push(node.end);
      for (const child of this.visit(node)) todo.push([child, node]);
    }
    for (const [index, text, isBehind] of this.written) this.chars[index] = isBehind ? this.chars[index] + text : text;
    // What ended with a type must still end there: the next line may start with `(`.
    for (const end of ends) if (this.chars[end - 1] === " " && this.text[end - 1] !== " ") this.chars[end - 1] = ";";
    return this.chars.join("");
  }

  /** Erase the types of a node; returns the children to visit. */
  visit(node) {
    const { type, start, end } = node, { text } = this;
    const isAmbient = node.declare || node.importKind === "type" || node.exportKind === "type"
      || TYPE_STATEMENTS.has(node.declaration?.type);
    const hasNoBody = node.value?.type === "TSDeclareMethod" || (node.abstract && type === "PropertyDefinition");
    if (isAmbient || hasNoBody || TYPE_STATEMENTS.has(type)) {
      const isPart = type.endsWith("Specifier");
      this.erase(start, isPart ? this.behindComma(end) : end);
      if (!isPart) this.written.push([start, ";"]);
      return [];
    }
    if (type in REFUSED_TYPES) throw new ScriptError(REFUSED_TYPES[type], start);
    if (TYPE_PARTS.has(type)) {
      this.erase(start, end);
      return [];
    }
    if (type === "TSEnumDeclaration") return this.enumeration(node);
    const gone = new Set(node.implements);
    if (type === "TSAsExpression" || type === "TSSatisfiesExpression") {
      gone.add(node.typeAnnotation);
      this.erase(text.lastIndexOf(type === "TSAsExpression" ? "as" : "satisfies", node.typeAnnotation.start - 1), end);
    } else if (type === "TSTypeAssertion") {
      gone.add(node.typeAnnotation);
      const close = text.indexOf(">", node.typeAnnotation.end) + 1;
      if (text.slice(start, node.expression.start).includes("\n")) throw new ScriptError("use `as` instead of `<type>`", start);
      this.erase(start, close);
    } else if (type === "TSNonNullExpression") this.erase(end - 1, end);
    else if (type === "ArrowFunctionExpression") this.joinArrow(node);
    else if (type === "MethodDefinition" || type === "PropertyDefinition") this.modifiers(start, node.key.start, true);
    else if (type === "TSParameterProperty") this.modifiers(start, (node.parameter.left ?? node.parameter).start, false);
    else if (node.abstract) this.erase(start, start + "abstract".length);
    if (node.kind === "constructor") this.parameterProperties(node.value);
    if (node.optional && type === "Identifier") this.mark("?", start + node.name.length);
    else if (node.optional && node.key) this.mark("?", node.key.end);
    if (node.definite) this.mark("!", start);
    const first = node.params?.[0];
    if (first?.name === "this") {
      gone.add(first);
      this.erase(first.start, this.behindComma(first.end));
    }
    if (gone.has(node.implements?.[0])) {
      this.erase(text.lastIndexOf("implements", node.implements[0].start - 1), node.implements.at(-1).end);
    }
    return childrenOf(node, Object.keys(node)).filter((child) => !gone.has(child));
  }

  /** The position behind spaces and comments. */
  behindSpaces(at) {
    SPACES.lastIndex = at;
    return SPACES.test(this.text) && SPACES.lastIndex;
  }

  behindComma(end) {
    const at = this.behindSpaces(end);
    return this.text[at] === "," ? at + 1 : end;
  }

  mark(mark, from) {
    const at = this.text.indexOf(mark, from);
    this.erase(at, at + 1);
  }

  modifiers(start, end, isMember) {
    for (const { index, 0: word } of this.text.slice(start, end).matchAll(MODIFIER)) {
      this.erase(start + index, start + index + word.length);
      if (isMember && index === 0) this.written.push([start, ";"]); // before `[` and `*`
    }
  }

  /** No line may break before `=>`, or behind `async`: the parenthesis moves to the other end of the erased type. */
  joinArrow({ async, start, returnType, typeParameters }) {
    if (returnType && this.text.slice(returnType.start, returnType.end).includes("\n")) {
      const close = this.text.lastIndexOf(")", returnType.start);
      this.erase(close, close + 1);
      this.written.push([returnType.end - 1, ")"]);
    }
    if (async && typeParameters && this.text.slice(start, typeParameters.end).includes("\n")) {
      const open = this.text.indexOf("(", typeParameters.end);
      this.written.push([typeParameters.start, "("], [open, " "]);
    }
  }

  /** `constructor(private a: A)` assigns `this.a = a`, behind `super(...)` if there is one. */
  parameterProperties({ params, body }) {
    const named = params.filter((each) => each.type === "TSParameterProperty").map(({ parameter }) => (parameter.left ?? parameter).name);
    const first = body.body.find(({ expression }) => expression?.callee?.type === "Super");
    const at = (first?.end ?? body.start + 1) - 1;
    if (named.length) this.written.push([at, (first ? ";" : "") + named.map((name) => ` this.${name} = ${name};`).join(""), true]);
  }

  /** `enum E { a, b = "x" }` fills an object; a number leads back to its name. */
  enumeration({ id, members, start, end }) {
    const open = this.behindSpaces(id.end);
    // Behind the `=`: an initializer itself may start behind a parenthesis.
    const starts = members.map((each) => each.initializer ? this.behindSpaces(each.id.end) + 1 : each.end);
    const values = members.map((each, i) => this.text.slice(starts[i], each.end));
    const used = new Set(values.join(" ").match(/[\w$]+/g));
    const isBound = (name) => used.has(name) && !keywords.test(name) && !reserved.reservedWordsStrictBind.test(name);
    this.erase(start, open + 1);
    this.written.push([open, `var ${id.name} = ((${id.name}) => {`]);
    let next = "0";
    for (const [i, { id: key, initializer, start, end }] of members.entries()) {
      const quoted = JSON.stringify(key.name ?? key.value), member = `${id.name}[${quoted}]`;
      this.erase(start, starts[i]);
      this.written.push([start, `${isBound(key.name) ? `const ${key.name} = ` : ""}${member} = ${initializer ? "" : next}`]);
      this.written.push([end - 1, `; if (typeof ${member} === "number") ${id.name}[${member}] = ${quoted};`, true]);
      this.erase(end, this.behindComma(end));
      next = `${member} + 1`;
    }
    this.written.push([end - 1, ` return ${id.name}; })({});`]);
    return members.flatMap((each) => each.initializer ?? []);
  }
}
