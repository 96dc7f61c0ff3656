// Builds the files of assets/, which are committed and compiled into the program. With --check it
// writes nothing, and fails if the committed files differ from the sources.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gunzipSync, gzipSync } from "node:zlib";
import { build } from "esbuild";

const root = fileURLToPath(new URL("../", import.meta.url));
const assets = `${root}assets/`;
const isCheck = process.argv.includes("--check");

/** The most compressed bytes of all files together. */
const BUDGET = 120 * 1024;

/** The licences of these libraries ask to be part of every copy. */
const LIBRARIES = ["preact", "@preact/signals", "@preact/signals-core", "uplot"];
const licence = (name) =>
  `${name}\n\n${readFileSync(`${root}node_modules/${name}/LICENSE`, "utf8").trim()}`;

const { outputFiles } = await build({
  absWorkingDir: root,
  entryPoints: { app: "app/main.tsx" },
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  banner: { js: `/*\n${LIBRARIES.map(licence).join("\n\n")}\n*/` },
  charset: "utf8",
  sourcemap: false,
  outdir: "assets",
  write: false,
  logLevel: "warning",
});
const built = outputFiles.map(({ path, contents }) => [path.split("/").at(-1), contents]);
built.push(["index.html", readFileSync(`${root}app/index.html`)]);

const read = (name) => {
  try {
    return readFileSync(assets + name);
  } catch {
    return Buffer.alloc(0);
  }
};

let sum = 0;
const stale = [];
if (!isCheck) mkdirSync(assets, { recursive: true });
for (const [name, bytes] of built) {
  const contents = Buffer.from(bytes);
  // Versions of Node compress differently, so the comparison is of what was compressed.
  const committed = read(`${name}.gz`);
  const isSame = committed.length > 0 && gunzipSync(committed).equals(contents);
  if (isCheck && !(isSame && read(name).equals(contents))) stale.push(name);
  const compressed = isSame ? committed : gzipSync(contents, { level: 9 });
  sum += compressed.length;
  console.log(`${name}: ${contents.length} bytes, ${compressed.length} compressed`);
  if (!isCheck) {
    writeFileSync(assets + name, contents);
    writeFileSync(`${assets}${name}.gz`, compressed);
  }
}
console.log(`all: ${sum} compressed, of ${BUDGET}`);
if (sum > BUDGET) throw new Error("the files are larger than the budget");
if (stale.length > 0) throw new Error(`run npm run build: ${stale.join(", ")} differ in assets/`);
