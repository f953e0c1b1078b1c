// A list of any length of which only what is seen exists. Browsers cannot make anything
// taller than some 33 million pixels: a longer list is scrolled by proportion, and its
// wheel still by lines.

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const tallest = 8_000_000;

export interface ListProps {
  count: number;
  height: number; // of a row
  row: (i: number) => JSX.Element | null;
  label: string;
  class?: string;
  rowClass?: (i: number) => string;
  // stick keeps the end in sight until the reader scrolls away from it.
  stick?: boolean;
  // show scrolls to a row when its value changes.
  show?: { row: number; n: number };
  role?: "list" | "log";
  wide?: boolean; // rows may be wider than the list
  onEdge?: (atEnd: boolean) => void;
  empty?: JSX.Element;
}

export function List(p: ListProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 }); // top in rows' own pixels
  const stuck = useRef(!!p.stick);
  const setting = useRef(-1); // a scroll position of our own making
  const total = p.count * p.height;
  const inner = Math.min(total, tallest);
  const scale = inner > view.height && total > inner ? (total - view.height) / (inner - view.height) : 1;

  const place = (top: number) => {
    const el = box.current;
    if (!el) return;
    top = Math.max(0, Math.min(top, total - el.clientHeight));
    const at = Math.round(top / scale);
    if (Math.abs(el.scrollTop - at) >= 1) {
      setting.current = at;
      el.scrollTop = at;
    }
    if (Math.abs(view.top - top) >= 1) setView({ top, height: el.clientHeight });
  };

  useLayoutEffect(() => {
    const el = box.current!;
    const measure = () => setView((v) => (v.height === el.clientHeight ? v : { ...v, height: el.clientHeight }));
    measure();
    const o = new ResizeObserver(measure);
    o.observe(el);
    return () => o.disconnect();
  }, []);

  useLayoutEffect(() => {
    if (p.stick && stuck.current) place(total);
    else if (view.top > Math.max(0, total - view.height)) place(total);
  }, [p.count, view.height, p.stick]);

  useEffect(() => {
    if (p.show && p.show.row >= 0) {
      stuck.current = false;
      const at = p.show.row * p.height;
      if (at < view.top || at + p.height > view.top + view.height) place(at - view.height / 2);
    }
  }, [p.show?.n]);

  const onScroll = () => {
    const el = box.current;
    if (!el) return; // the last scrolling of a list that is gone
    if (Math.abs(el.scrollTop - setting.current) < 1) {
      setting.current = -1;
      return;
    }
    const top = el.scrollTop * scale;
    const end = top + el.clientHeight >= total - p.height / 2;
    if (p.stick && end !== stuck.current) {
      stuck.current = end;
      p.onEdge?.(end);
    }
    setView({ top, height: el.clientHeight });
  };
  const onWheel = (e: WheelEvent) => {
    if (scale === 1 || e.ctrlKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) return;
    e.preventDefault();
    const top = view.top + e.deltaY * (e.deltaMode === 1 ? p.height : 1);
    stuck.current = !!p.stick && top + view.height >= total;
    p.onEdge?.(stuck.current);
    place(top);
  };

  const first = Math.max(0, Math.floor(view.top / p.height) - 6);
  const last = Math.min(p.count, Math.ceil((view.top + view.height) / p.height) + 6);
  const shift = view.top / scale - view.top; // where the rows of this part stand in a scaled list
  const rows: JSX.Element[] = [];
  for (let i = first; i < last; i++)
    rows.push(
      <div
        key={i}
        role={p.role === "log" ? undefined : "listitem"}
        aria-setsize={p.role === "log" ? undefined : p.count}
        aria-posinset={p.role === "log" ? undefined : i + 1}
        class={"row " + (p.rowClass?.(i) ?? "")}
        style={{ transform: `translateY(${i * p.height + shift}px)`, height: p.height + "px" }}
      >
        {p.row(i)}
      </div>,
    );
  return (
    <div ref={box} class={"list " + (p.wide ? "wide " : "") + (p.class ?? "")} onScroll={onScroll} onWheel={onWheel} tabIndex={0} role={p.role === "log" ? "group" : undefined} aria-label={p.role === "log" ? p.label : undefined}>
      {p.count === 0 && p.empty}
      <div class="rows" role={p.role === "log" ? undefined : "list"} aria-label={p.role === "log" ? undefined : p.label} style={{ height: inner + "px" }}>
        {rows}
      </div>
    </div>
  );
}
