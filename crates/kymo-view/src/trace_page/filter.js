// Filters of events in the words of `kymo script --filter`, on typed values.
const COMPARISONS = ["==", "!=", "<=", ">=", "!~", "<", ">", "&", "~"];
// An expression as a function of an event, or what is wrong with it.
function parseFilter(text) {
  let at = 0, depth = 0;
  const fail = why => { throw new SyntaxError(why + " at " + (at + 1)); };
  const blanks = () => { while (/\s/.test(text[at] || "")) at++; };
  const take = token => { blanks(); const found = text.startsWith(token, at); if (found) at += token.length; return found; };
  const or = () => { let left = and(); while (take("||")) { const a = left, b = and(); left = bind((e, x, y) => x(e) || y(e), a, b); } return left; };
  const and = () => { let left = unary(); while (take("&&")) { const a = left, b = unary(); left = bind((e, x, y) => x(e) && y(e), a, b); } return left; };
  // Each node is bound to a class first: null where that lacks a field.
  const bind = (test, ...nodes) => cls => {
    const bound = nodes.map(n => n(cls));
    return bound.includes(null) ? null : e => test(e, ...bound);
  };
  function unary() {
    if (++depth > 64) fail("nested deeper than 64");
    let node;
    if (take("!")) node = bind((e, x) => !x(e), unary());
    else if (take("(")) { node = or(); if (!take(")")) fail("expected )"); } else node = comparison();
    depth--;
    return node;
  }
  function comparison() {
    blanks();
    const name = /^[\p{L}\p{N}_.]*/u.exec(text.slice(at))[0];
    if (!name) fail("expected the name of a field");
    at += name.length;
    blanks();
    const op = text.startsWith("&&", at) ? null : COMPARISONS.find(c => text.startsWith(c, at));
    if (!op) fail("expected one of " + COMPARISONS.join(" "));
    at += op.length;
    blanks();
    const quote = text[at] === '"' || text[at] === "'" ? text[at] : "", pattern = op.endsWith("~");
    let value = "";
    if (quote) {
      for (at++; text[at] !== quote; at++) { if (at >= text.length) fail("the quote is not closed"); if (text[at] === "\\") at++; value += text[at] ?? ""; }
      at++;
    } else { value = /^[^\s)&|]*/.exec(text.slice(at))[0]; at += value.length; if (!value) fail("expected a number or a text"); }
    if (pattern) return subject(name, op, "pattern", globOf(value, fail));
    const whole = !quote && /^-?(0[xX][0-9a-fA-F]+|\d+)$/.test(value);
    if (whole) return subject(name, op, "number", value[0] === "-" ? -BigInt(value.slice(1)) : BigInt(value));
    if (!quote && /^-?\d+\.\d+$/.test(value)) { if (op === "&") fail("& compares bits"); return subject(name, op, "real", Number(value)); }
    if (op !== "==" && op !== "!=") fail("expected a number: text is compared by == != ~");
    return subject(name, op, "text", value);
  }
  const node = or();
  blanks();
  if (at < text.length) fail("expected && or || or the end");
  return node;
}
function globOf(glob, fail) {
  let out = "", braces = 0;
  for (let i = 0; i < glob.length; i++) {
    const c = glob[i];
    if (c === "*") out += "[^]*";
    else if (c === "?") out += "[^]";
    else if (c === "[") {
      const end = glob.indexOf("]", i + (/^[!^]/.test(glob.slice(i + 1)) ? 3 : 2));
      if (end < 0) fail("[ is not closed");
      out += "[" + glob.slice(i + 1, end).replace(/^[!^]/, "^").replace(/[\\[\]]/g, "\\$&") + "]";
      i = end;
    } else if (c === "{") { braces++; out += "(?:"; } else if (c === "}" && braces) { braces--; out += ")"; }
    else if (c === "," && braces) out += "|";
    else if (c === "\\" && i + 1 < glob.length) out += glob[++i].replace(/[^\w\s]/g, "\\$&");
    else out += c.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");
  }
  if (braces) fail("{ is not closed");
  try { return new RegExp("^(?:" + out + ")$", "u"); } catch { return fail("not a pattern"); }
}
const ordered = (a, op, b) => op === "==" ? a === b : op === "!=" ? a !== b : op === "<" ? a < b : op === "<=" ? a <= b : op === ">" ? a > b : op === ">=" ? a >= b : false;
const byText = (value, op, kind, other) => kind === "pattern" ? other.test(value) === (op === "~") : op === "==" ? value === other : value !== other;
function byNumber(value, op, kind, other) {
  if (kind === "real") return ordered(Number(value), op, other);
  return op === "&" ? (value & other) !== 0n : ordered(value, op, other);
}
const toNumber = text => text === "true" ? 1n : text === "false" ? 0n : /^-?(0x[0-9a-f]+|\d+)$/.test(text) ? (text[0] === "-" ? -BigInt(text.slice(1)) : BigInt(text)) : null;
// A comparison of one name, bound to a class and its fields.
function subject(name, op, kind, other) {
  const isText = kind === "text" || kind === "pattern";
  return ({ cls, fields }) => {
    const full = HEAD.classes[cls], dot = name.lastIndexOf("."), short = full.slice(full.indexOf(":") + 1);
    if (dot >= 0 && ![full, short].includes(name.slice(0, dot))) return null;
    const own = dot >= 0 ? name.slice(dot + 1) : name, index = fields.findIndex(f => f[0] === own);
    if (index >= 0) {
      const type = fields[index][1];
      if (isText ? type === "n" || type === "f" : type === "t") return null;
      if (op === "&" && type === "f") return null;
      return e => {
        const cell = e.cells[index];
        if (cell === undefined || cell === "\x1d") return false;
        if (type === "f") return ordered(Number(cell), op, Number(other));
        if (type === "e") {
          const [shown, number] = cell.split("\x1e");
          return isText ? byText(shown.split("(")[0], op, kind, other) : byNumber(BigInt(number), op, kind, other);
        }
        if (isText) return byText(cell, op, kind, other);
        const number = toNumber(cell);
        return number !== null && byNumber(number, op, kind, other);
      };
    }
    if (own === "comm" || own === "event") {
      if (!isText) return null;
      return own === "event" ? () => [full, short].some(n => byText(n, op, kind, other)) : e => byText(e.comm, op, kind, other);
    }
    if (!["pid", "tid", "cpu"].includes(own) || isText) return null;
    return e => { const value = own === "cpu" ? e.cpu : own === "tid" ? e.task?.tid : e.task?.pid ?? e.task?.tid; return value !== undefined && value !== null && value >= 0 && byNumber(BigInt(value), op, kind, other); };
  };
}
// The filter of a text: an expression if it compares something, else words that are in the row.
let filterWrong = "";
function makeFilter(text) {
  filterWrong = "";
  if (!text.trim()) return null;
  if (!/[=<>~&]/.test(text)) {
    const words = text.toLowerCase().split(/\s+/).filter(w => w), isNot = w => w[0] === "-" && w.length > 1;
    return e => { const line = e.line(); return words.every(w => isNot(w) ? !line.includes(w.slice(1)) : line.includes(w)); };
  }
  let node;
  try { node = parseFilter(text); } catch (e) { filterWrong = e.message; return () => false; }
  const bound = new Map();
  return e => {
    const key = e.cls + ":" + e.layout;
    if (!bound.has(key)) bound.set(key, node({ cls: e.cls, fields: HEAD.classFields[e.layout] || [] }));
    const test = bound.get(key);
    return test !== null && test(e);
  };
}
