// Judges hosts as the Worker does: node judgehosts.mjs POLICY CASES writes the reason of each case, as a list in JSON.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [policy, file] = process.argv.slice(2);
const { checkHost } = await import(pathToFileURL(policy));
const { allow, cases } = JSON.parse(readFileSync(file, "utf8"));
console.log(JSON.stringify(cases.map(({ host, port }) => checkHost({ allow }, host, port)?.reason ?? "")));
