// The output of a command, of any length, in bounded memory. It is read once from its
// beginning as frames of the tape; what is kept of all of it is where its pages begin.
// The pages themselves are kept for as long as there is room, and fetched again when
// the reader comes back to them.

import { after, plain, spans, type Span, type Style } from "./ansi";
import { awake, Failure, onSleep, stream } from "./api";

const pageBytes = 256 << 10;
const pageRows = 8192;
const room = 24 << 20; // bytes of pages that are kept
const rowBytes = 4000; // a longer line is shown as several

export const Stdout = 1;
export const Stderr = 2;
const Exit = 4;
const Gap = 5;
const Note = 6;

export type Which = "both" | "stdout" | "stderr";

interface Page {
  seq: number; // it holds what comes after this frame
  row: number; // its first
  carry: Uint8Array; // the beginning of its first row, from the page before
  carryKind: number;
  style: Style; // at its beginning
  content: Content | null;
  used: number;
}

// Content is a page's bytes and where in them the rows end.
class Content {
  bytes = new Uint8Array(16 << 10);
  length = 0;
  ends = new Uint32Array(512);
  kinds = new Uint8Array(512);
  rows = 0; // finished ones
  kind = 0; // of the unfinished row
  begin = 0; // and where it begins
  escapes = false;
  styles: Style[] | null = null; // at the beginning of each row

  constructor(carry: Uint8Array, kind: number) {
    if (carry.length) this.put(carry);
    this.kind = kind;
  }
  put(b: Uint8Array): void {
    if (this.length + b.length > this.bytes.length) {
      const more = new Uint8Array(Math.max(this.bytes.length * 2, this.length + b.length));
      more.set(this.bytes.subarray(0, this.length));
      this.bytes = more;
    }
    this.bytes.set(b, this.length);
    this.length += b.length;
    if (!this.escapes && b.indexOf(27) >= 0) this.escapes = true;
  }
  end(): void {
    if (this.rows === this.ends.length) {
      const ends = new Uint32Array(this.rows * 2);
      ends.set(this.ends);
      this.ends = ends;
      const kinds = new Uint8Array(this.rows * 2);
      kinds.set(this.kinds);
      this.kinds = kinds;
    }
    this.ends[this.rows] = this.length;
    this.kinds[this.rows++] = this.kind;
    this.begin = this.length;
    this.styles = null;
  }
  // feed takes output and cuts it into rows. Newlines are not kept.
  feed(kind: number, b: Uint8Array): void {
    if (this.kind !== kind && this.length > this.begin) this.end(); // the other stream cut in
    this.kind = kind;
    for (let at = 0; at < b.length; ) {
      const nl = b.indexOf(10, at);
      const to = nl < 0 ? b.length : nl;
      while (this.length - this.begin + (to - at) > rowBytes) {
        const n = rowBytes - (this.length - this.begin);
        this.put(b.subarray(at, at + n));
        this.end();
        at += n;
      }
      if (to > at) this.put(b.subarray(at, to));
      if (nl < 0) return;
      this.end();
      at = nl + 1;
    }
  }
  get open(): boolean {
    return this.length > this.begin;
  }
  row(i: number): Uint8Array {
    return this.bytes.subarray(i === 0 ? 0 : this.ends[i - 1], i < this.rows ? this.ends[i] : this.length);
  }
  get size(): number {
    return this.bytes.length + this.ends.length * 5;
  }
}

// Frames cuts a stream into frames and hands on their data as it comes.
class Frames {
  private head = new Uint8Array(32);
  private have = 0;
  private left = 0;
  kind = 0;
  seq = 0;
  constructor(private data: (f: Frames, b: Uint8Array) => void, private end: (f: Frames) => void) {}
  feed(b: Uint8Array): void {
    for (let at = 0; at < b.length; ) {
      if (this.have < 32) {
        const n = Math.min(32 - this.have, b.length - at);
        this.head.set(b.subarray(at, at + n), this.have);
        this.have += n;
        at += n;
        if (this.have < 32) return;
        const v = new DataView(this.head.buffer);
        this.left = v.getUint32(4, true);
        this.seq = Number(v.getBigUint64(8, true));
        this.kind = v.getUint8(28);
      }
      const n = Math.min(this.left, b.length - at);
      if (n > 0) this.data(this, b.subarray(at, at + n));
      this.left -= n;
      at += n;
      if (this.left === 0) {
        this.have = 0;
        this.end(this);
      }
    }
  }
}

const text = new TextDecoder();

export class Log {
  rows = 0;
  bytes = 0;
  ended = false;
  error = "";
  gaps = 0;
  private pages: Page[] = [];
  private seq = 0; // the last frame read
  private part = { seq: 0, bytes: 0 }; // the frame that is being read, and how much of it was
  private stop = new AbortController();
  private clockwork = 0;
  private fetching = new Map<Page, AbortController>();

  constructor(private path: string, private which: Which, private changed: () => void) {
    this.pages.push(this.page(0, 0, new Uint8Array(0), 0, plain));
    this.run();
  }

  private page(seq: number, row: number, carry: Uint8Array, carryKind: number, style: Style): Page {
    return { seq, row, carry, carryKind, style, content: new Content(carry, carryKind), used: 0 };
  }

  close(): void {
    this.stop.abort();
    for (const c of this.fetching.values()) c.abort();
  }

  private wanted(kind: number): boolean {
    return (kind === Stdout && this.which !== "stderr") || (kind === Stderr && this.which !== "stdout");
  }

  private get last(): Page {
    return this.pages[this.pages.length - 1];
  }

  // run follows to the end, and comes back after a cut.
  private async run(): Promise<void> {
    const signal = this.stop.signal;
    for (let pause = 300; !this.ended && !signal.aborted; ) {
      await awake();
      const turn = new AbortController();
      const rested = onSleep(() => turn.abort());
      const closed = () => turn.abort();
      signal.addEventListener("abort", closed);
      try {
        const r = await stream(this.path + (this.seq ? `?after=${this.seq}` : ""), "application/vnd.conch.tape", turn.signal);
        if (!r) this.ended = true;
        else {
          let note = "";
          let known = this.part.bytes; // a frame that was cut comes again, whole
          const frames = new Frames(
            (f, b) => {
              if (f.seq !== this.part.seq) this.part = { seq: f.seq, bytes: 0 };
              else if (known > 0) {
                const n = Math.min(known, b.length);
                known -= n;
                b = b.subarray(n);
              }
              this.part.bytes += b.length;
              if (this.wanted(f.kind)) {
                this.bytes += b.length;
                this.last.content!.feed(f.kind, b);
              } else if (f.kind === Note && f.seq === 0) note += text.decode(b, { stream: true });
            },
            (f) => this.frame(f),
          );
          for (;;) {
            const { done, value } = await r.read();
            if (done) break;
            frames.feed(value);
            this.count();
            if (this.ended) break;
          }
          if (note) {
            const { error } = JSON.parse(note);
            this.error = error.message;
            this.ended = true;
          }
          pause = 300;
        }
      } catch (e) {
        if (signal.aborted) return;
        if (e instanceof Failure && e.status >= 400 && e.status < 500) {
          this.error = e.message;
          this.ended = true;
        }
      }
      rested();
      signal.removeEventListener("abort", closed);
      this.count();
      if (!this.ended) {
        await new Promise((r) => setTimeout(r, pause));
        pause = Math.min(pause * 2, 5000);
      }
    }
  }

  private frame(f: Frames): void {
    if (f.seq) this.seq = f.seq;
    this.part = { seq: 0, bytes: 0 };
    if (f.kind === Exit) this.ended = true;
    if (f.kind === Gap) this.gaps++;
    const p = this.last;
    const c = p.content!;
    if (c.length >= pageBytes || c.rows >= pageRows) {
      const carry = c.bytes.slice(c.begin, c.length);
      const style = c.escapes ? after(c.bytes.subarray(0, c.begin), p.style) : p.style;
      const kind = c.kind;
      c.length = c.begin; // the unfinished row is the next page's
      this.pages.push(this.page(this.seq, p.row + c.rows, carry, kind, style));
      this.tidy();
    }
  }

  private count(): void {
    const c = this.last.content!;
    this.rows = this.last.row + c.rows + (c.open ? 1 : 0);
    this.changed();
  }

  // tidy lets go of the pages that were not looked at for longest.
  private tidy(): void {
    let size = 0;
    for (const p of this.pages) if (p.content) size += p.content.size;
    if (size <= room) return;
    const held = this.pages.filter((p) => p.content && p !== this.last).sort((a, b) => a.used - b.used);
    for (const p of held) {
      if (size <= room) return;
      size -= p.content!.size;
      p.content = null;
    }
  }

  private find(row: number): Page {
    let lo = 0;
    for (let hi = this.pages.length - 1; lo < hi; ) {
      const mid = (lo + hi + 1) >> 1;
      if (this.pages[mid].row <= row) lo = mid;
      else hi = mid - 1;
    }
    return this.pages[lo];
  }

  // row is a line and its stream; null while it is being fetched.
  row(i: number): { spans: Span[]; kind: number } | null {
    const p = this.find(i);
    p.used = ++this.clockwork;
    const c = p.content;
    if (!c) {
      this.fetch(p);
      return null;
    }
    const n = i - p.row;
    if (n > c.rows || (n === c.rows && !c.open)) return { spans: [], kind: Stdout };
    let style = p.style;
    if (c.escapes) {
      if (!c.styles || c.styles.length < c.rows + 1) {
        c.styles = [p.style];
        for (let k = 0; k < c.rows; k++) c.styles.push(after(c.row(k), c.styles[k]));
      }
      style = c.styles[n];
    }
    return { spans: spans(text.decode(c.row(n)), style)[0], kind: n < c.rows ? c.kinds[n] : c.kind };
  }

  // fetch reads a page again.
  private async fetch(p: Page): Promise<void> {
    if (this.fetching.has(p)) return;
    const at = this.pages.indexOf(p);
    const until = this.pages[at + 1]?.seq;
    if (until === undefined) return;
    const stop = new AbortController();
    this.fetching.set(p, stop);
    const c = new Content(p.carry, p.carryKind);
    try {
      const r = await stream(this.path + (p.seq ? `?after=${p.seq}` : ""), "application/vnd.conch.tape", stop.signal);
      let whole = false;
      const frames = new Frames(
        (f, b) => {
          if (!whole && this.wanted(f.kind)) c.feed(f.kind, b);
        },
        (f) => {
          if (f.seq >= until) whole = true;
        },
      );
      while (r && !whole) {
        const { done, value } = await r.read();
        if (done) break;
        frames.feed(value);
      }
      if (whole) {
        c.length = c.begin;
        p.content = c;
        p.used = ++this.clockwork;
        this.tidy();
      }
    } catch {
      // It is asked for again with the next look.
    }
    stop.abort(); // the rest is not wanted
    this.fetching.delete(p);
    this.changed();
  }

  // search gives the numbers of rows that hold a text, as many as most, in order. It
  // reads everything once more, from the beginning to where it has come by now, and
  // keeps nothing of it.
  async search(what: string, most: number, signal: AbortSignal, found: (rows: number[]) => void): Promise<void> {
    const want = what.toLowerCase();
    const rows: number[] = [];
    const until = this.seq;
    let first = 0;
    let c = new Content(new Uint8Array(0), 0);
    const look = (end: boolean) => {
      const n = c.rows + (end && c.open ? 1 : 0);
      // Most parts do not have it at all.
      if (c.escapes || text.decode(c.bytes.subarray(0, c.length)).toLowerCase().includes(want))
        for (let k = 0; k < n && rows.length < most; k++) {
          const line = spans(text.decode(c.row(k)), plain)[0];
          if (line.map((s) => s.text).join("").toLowerCase().includes(want)) rows.push(first + k);
        }
      first += c.rows;
      c = new Content(c.bytes.slice(c.begin, c.length), c.kind);
    };
    let over = until === 0;
    const frames = new Frames(
      (f, b) => {
        if (!over && this.wanted(f.kind)) c.feed(f.kind, b);
      },
      (f) => {
        if (c.length >= pageBytes) look(false);
        if (f.seq >= until) over = true;
      },
    );
    const stop = new AbortController();
    signal.addEventListener("abort", () => stop.abort());
    const r = over ? null : await stream(this.path, "application/vnd.conch.tape", stop.signal);
    while (r && !over && rows.length < most) {
      const { done, value } = await r.read();
      if (done) break;
      frames.feed(value);
      if (rows.length) found(rows.slice());
    }
    stop.abort();
    look(true);
    found(rows);
  }
}
