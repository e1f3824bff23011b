// Describes a script that does not parse.

const IS_PYTHON = 'This is Python, and the call runs JavaScript. Use kernel="python", or write JavaScript: ' +
  "`const issue = await tickets.get_issue({id: 3})`, `console.log(issue)`.";
const PYTHON_LINE = /^[ \t]*(?:(?:async )?def \w|elif |except\b|from [\w.]+ import |[^\n/]{0,200}\S for \w+(?:, ?\w+)? in [^\n]{0,200}[\])}]|\w+ = """|import \w+[ \t]*$|print\(f?["']|# |(?:if|for|while|with|class|try|else)\b[^{}\n]*:[ \t]*$)|\bawait asyncio\./m;

/** Message, line, hint and traceback of a script that does not parse. */
function describe(error, text) {
  if (/out of memory/.test(error.message)) return { code: "memory_limit", message: "", line: null, hint: "" };
  if (/stack (?:space|size|overflow)/i.test(error.message)) {
    const hint = "Split long expressions into several statements.";
    return { code: "syntax_error", message: "RangeError: the script is nested too deeply", line: null, hint };
  }
  if (error.pos === undefined) return { code: "syntax_error", message: `${error.name}: ${error.message}`, line: null, hint: "" };
  const position = error.pos, line = lineCounter(text)(position);
  let what = error.message.replace(/ \(\d+:\d+\)$/, "");
  if (what === "Unexpected token") {
    const token = /^(?:[\w$]+|=>|[=!<>&|?*+-]{1,3}|.)/.exec(text.slice(position, position + 40))?.[0];
    what = token && position < text.trimEnd().length ? `Unexpected token \`${token}\`` : `Unexpected end of the script${unclosed(text)}`;
  }
  const isAwait = /\bawait\s+$/.test(text.slice(Math.max(0, position - 20), position));
  const isDecorator = what === "Unexpected character '@'", noDecorators = "There are no decorators: call the function with what it decorates.";
  const hint = PYTHON_LINE.test(text.slice(0, 100_000)) ? IS_PYTHON : isAwait ? "`await` needs an `async` function around it." : isDecorator ? noDecorators : "";
  const message = `SyntaxError: ${what}`, start = text.lastIndexOf("\n", position - 1) + 1;
  const shown = text.slice(start).split("\n", 1)[0].slice(0, 200);
  const traceback = `script.js:${line}\n    ${shown}\n    ${" ".repeat(Math.min(position - start, 200))}^\n${message}`;
  return { code: "syntax_error", message, line, hint, traceback };
}

/** Where the innermost bracket that is not closed was opened. */
function unclosed(text) {
  const open = [], lineOf = lineCounter(text);
  try {
    for (const { type: { label }, start } of acornNamespace.tokenizer(text, OPTIONS)) {
      if (/^(?:[{([]|\$\{)$/.test(label)) open.push([label, start]);
      else if (/^[})\]]$/.test(label)) open.pop();
    }
  } catch { /* the position is all there is */ }
  const [label, start] = open.at(-1) ?? [];
  return label ? `: the \`${label}\` in line ${lineOf(start)} is not closed` : "";
}
