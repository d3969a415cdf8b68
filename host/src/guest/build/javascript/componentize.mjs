// Makes a component of a JavaScript module: node componentize.mjs ENTRY WIT WORLD OUTPUT
//
// Every feature of the engine that would need a system beneath is off: what is left imports what the world says, and no more.
import { readFile, writeFile } from "node:fs/promises";
import { relative } from "node:path";
import { componentize, DEFAULT_FEATURES } from "@bytecodealliance/componentize-js";
import { parseSync } from "oxc-parser";

const [entry, wit, world, output] = process.argv.slice(2);
try {
  // The tool counts a module's mistakes; the parser that it uses shows them.
  const { errors } = parseSync(relative(process.cwd(), entry), await readFile(entry, "utf8"));
  if (errors.length > 0) {
    throw new Error(errors.map((error) => error.codeframe ?? error.message).join("\n"));
  }
  const made = await componentize({
    sourcePath: entry,
    witPath: wit,
    worldName: world,
    disableFeatures: DEFAULT_FEATURES,
  });
  await writeFile(output, made.component);
} catch (error) {
  console.error(error.message ?? String(error));
  process.exit(1);
}
