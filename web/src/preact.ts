// The hooks the views use, and a component that is loaded when it is first shown.

import { h, type ComponentType, type JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export { useEffect, useRef, useState };

export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): (props: P) => JSX.Element {
  let there: ComponentType<P> | null = null;
  return (props: P) => {
    const [, ready] = useState(0);
    useEffect(() => {
      let gone = false;
      if (!there)
        load().then((c) => {
          there = c;
          if (!gone) ready(1);
        });
      return () => {
        gone = true;
      };
    }, []);
    return there ? h(there as any, props as any) : h("p", { class: "muted pad" }, "Loading …");
  };
}
