// Output as text with colours. Escape sequences other than colours are left out: a log
// is not a terminal.

export interface Style {
  fg: number; // -1: none; 0-255 of the palette; from rgb on: a colour
  bg: number;
  bits: number;
}
export const plain: Style = { fg: -1, bg: -1, bits: 0 };
export const rgb = 0x1000000;
const bold = 1, dim = 2, italic = 4, underline = 8, inverse = 16, hidden = 32, strike = 64;

// apply changes a style by the numbers of one CSI … m.
export function apply(s: Style, params: string): Style {
  const n = params.split(/[;:]/).map((x) => (x === "" ? 0 : parseInt(x, 10)));
  let { fg, bg, bits } = s;
  for (let i = 0; i < n.length; i++) {
    const c = n[i];
    if (c === 0) (fg = bg = -1), (bits = 0);
    else if (c === 1) bits |= bold;
    else if (c === 2) bits |= dim;
    else if (c === 3) bits |= italic;
    else if (c === 4) bits |= underline;
    else if (c === 7) bits |= inverse;
    else if (c === 8) bits |= hidden;
    else if (c === 9) bits |= strike;
    else if (c === 22) bits &= ~(bold | dim);
    else if (c === 23) bits &= ~italic;
    else if (c === 24) bits &= ~underline;
    else if (c === 27) bits &= ~inverse;
    else if (c === 28) bits &= ~hidden;
    else if (c === 29) bits &= ~strike;
    else if (c >= 30 && c <= 37) fg = c - 30;
    else if (c >= 40 && c <= 47) bg = c - 40;
    else if (c >= 90 && c <= 97) fg = c - 90 + 8;
    else if (c >= 100 && c <= 107) bg = c - 100 + 8;
    else if (c === 39) fg = -1;
    else if (c === 49) bg = -1;
    else if (c === 38 || c === 48) {
      let v = -1;
      if (n[i + 1] === 5) (v = n[i + 2] & 255), (i += 2);
      else if (n[i + 1] === 2) (v = rgb + ((n[i + 2] & 255) << 16) + ((n[i + 3] & 255) << 8) + (n[i + 4] & 255)), (i += 4);
      else break;
      if (c === 38) fg = v;
      else bg = v;
    }
  }
  return fg === s.fg && bg === s.bg && bits === s.bits ? s : { fg, bg, bits };
}

// One escape sequence, whatever its kind.
const sequence = /\x1b(?:\[([0-9;:<=>?]*)[ -/]*([@-~])|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)/g;

export interface Span {
  text: string;
  style: Style;
}

const controls = /[\x00-\x08\x0b-\x1f\x7f]/g;
const visible = (t: string) => t.replace(controls, (c) => String.fromCharCode(c === "\x7f" ? 0x2421 : 0x2400 + c.charCodeAt(0)));

// spans cuts a line into pieces of one style each, and gives the style it ends with.
export function spans(line: string, style: Style): [Span[], Style] {
  const out: Span[] = [];
  let at = 0;
  const add = (t: string) => {
    // What is drawn over what stood there: progress bars.
    t = t.replace(/\r+$/, "");
    const over = t.lastIndexOf("\r");
    if (over >= 0) {
      out.length = 0;
      t = t.slice(over + 1);
    }
    if (t) out.push({ text: visible(t), style });
  };
  if (line.includes("\x1b")) {
    sequence.lastIndex = 0;
    for (let m; (m = sequence.exec(line)); ) {
      if (m.index > at) add(line.slice(at, m.index));
      at = m.index + m[0].length;
      if (m[2] === "m" && !/[<=>?]/.test(m[1])) style = apply(style, m[1]);
      if (m[0].length === 0) sequence.lastIndex++;
    }
  }
  if (at < line.length) add(line.slice(at));
  return [out, style];
}

// after is the style that bytes end with, found without making text of them.
export function after(b: Uint8Array, style: Style): Style {
  for (let i = b.indexOf(27); i >= 0; i = b.indexOf(27, i + 1)) {
    if (b[i + 1] !== 91) continue;
    let j = i + 2;
    let params = "";
    while (j < b.length && b[j] >= 0x30 && b[j] <= 0x3b && j - i < 64) params += String.fromCharCode(b[j++]);
    if (b[j] === 109) style = apply(style, params);
  }
  return style;
}

const steps = [0, 95, 135, 175, 215, 255];
function colour(v: number): string {
  if (v >= rgb) return "#" + (v - rgb).toString(16).padStart(6, "0");
  if (v < 16) return `var(--ansi-${v})`;
  if (v >= 232) return `rgb(${Array(3).fill(8 + 10 * (v - 232)).join(" ")})`;
  v -= 16;
  return `rgb(${steps[Math.floor(v / 36)]} ${steps[Math.floor(v / 6) % 6]} ${steps[v % 6]})`;
}

// css is a style for a span.
export function css(s: Style): Record<string, string> | undefined {
  if (s.fg < 0 && s.bg < 0 && !s.bits) return undefined;
  const out: Record<string, string> = {};
  let fg = s.fg < 0 ? "" : colour(s.fg < 8 && s.bits & bold ? s.fg + 8 : s.fg);
  let bg = s.bg < 0 ? "" : colour(s.bg);
  if (s.bits & inverse) [fg, bg] = [bg || "var(--panel)", fg || "var(--text)"];
  if (fg) out.color = fg;
  if (bg) out.backgroundColor = bg;
  if (s.bits & bold) out.fontWeight = "600";
  if (s.bits & dim) out.opacity = "0.7";
  if (s.bits & italic) out.fontStyle = "italic";
  const lines = [s.bits & underline ? "underline" : "", s.bits & strike ? "line-through" : ""].join(" ").trim();
  if (lines) out.textDecoration = lines;
  if (s.bits & hidden) out.visibility = "hidden";
  return out;
}
