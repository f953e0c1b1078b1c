// Builds the page into internal/web/dist: hashed names, compressed, with the notices of
// what is built in.

import { build } from "esbuild";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = (p) => fileURLToPath(new URL(p, import.meta.url));
const out = here("../internal/web/dist");

await mkdir(out, { recursive: true });
for (const name of await readdir(out)) if (name !== "README") await rm(`${out}/${name}`, { recursive: true });

const { metafile } = await build({
  entryPoints: { app: here("src/main.tsx"), style: here("src/style.css") },
  outdir: out,
  bundle: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  minify: true,
  jsx: "automatic",
  jsxImportSource: "preact",
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
});

const named = (src) => basename(Object.entries(metafile.outputs).find(([, o]) => o.entryPoint?.endsWith(src))[0]);
const page = (await readFile(here("src/index.html"), "utf8"))
  .replace("{{style}}", named("src/style.css"))
  .replace("{{script}}", named("src/main.tsx"));
await writeFile(`${out}/index.html`, page);

// What is built in is others' work under licences that ask for their text.
const notices = [];
for (const name of ["preact", "@preact/signals", "@preact/signals-core", "@xterm/xterm", "@xterm/addon-fit", "@xterm/addon-search", "@xterm/addon-unicode11"])
  notices.push(`${name}\n\n${await readFile(here(`node_modules/${name}/LICENSE`), "utf8")}`);
await writeFile(`${out}/licences.txt`, notices.join("\n\n----\n\n"));

// Compressed only, the page itself excepted: the binary holds all of it.
let total = 0;
for (const name of await readdir(out)) {
  if (!/\.(js|css|txt)$/.test(name)) continue;
  const packed = gzipSync(await readFile(`${out}/${name}`), { level: 9 });
  await writeFile(`${out}/${name}.gz`, packed);
  await rm(`${out}/${name}`);
  if (!name.endsWith(".txt")) total += packed.length;
}
console.log(`internal/web/dist: ${Math.round(total / 1000)} kB compressed`);
