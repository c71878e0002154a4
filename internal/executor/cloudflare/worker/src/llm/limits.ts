// Says which limit refuses a call: internal/gateway/llm/book.go in TypeScript. The call that reaches a limit may exceed
// it, so that one limit never refuses the first call.

import type { Total } from "./book";
import { type Refused, refuse } from "./refusal";
import type { LLMSettings, Route, Use } from "./settings";

// refusalOf says why a call with these totals was not admitted. A limit that is used up comes before one that running
// calls reserve.
export function refusalOf(totals: Total[], name: string, route: Route, { cap }: LLMSettings): Refused {
  const [used, reserved] = [0, 1].map((n) => (scope: Total["scope"]): Use => {
    return totals.find((t) => t.scope === scope && t.reserved === n) ?? { usd: 0, requests: 0, tokens: 0 };
  }) as [(scope: Total["scope"]) => Use, (scope: Total["scope"]) => Use];
  const reached: Refused[] = [];
  if (cap !== null && used("budget").usd >= cap) {
    return refuse(
      403, "budget_exceeded",
      `all LLM calls of the environment together have used ${dollars(used("budget").usd)} of the month's budget of ` +
        `${dollars(cap)}: raise the budget, or wait for the next month`,
    );
  }
  if (cap !== null && used("budget").usd + reserved("budget").usd >= cap) {
    const message = `running calls reserve the rest of the month's budget of ${dollars(cap)}: try again when they have ended`;
    reached.push(refuse(429, "reserved", message).again(1));
  }
  const limits = [
    { scope: "lease", who: "the lease", limit: "lease_limits", most: route.lease_limits },
    { scope: "month", who: "the environment", limit: "monthly_limits", most: route.monthly_limits },
  ] as const;
  for (const { scope, who, limit, most } of limits) {
    for (const what of ["usd", "requests", "tokens"] as const) {
      if (most[what] === 0) continue;
      const text = amount(what, most[what]);
      if (used(scope)[what] >= most[what]) {
        const has = amount(what, used(scope)[what]);
        return refuse(403, "limit_reached", `${who} has used ${has} on route ${name} and reached ${limit}.${what}, which is ${text}`);
      }
      if (used(scope)[what] + reserved(scope)[what] >= most[what]) {
        const message = `running calls on route ${name} reserve the rest of ${limit}.${what}, which is ${text}`;
        reached.push(refuse(429, "reserved", `${message}: try again when they have ended`).again(1));
      }
    }
  }
  // If these totals reach no limit, the settings were removed in the meantime.
  return reached[0] ?? refuse(503, "not_configured", "the environment has no LLM routes now: try again").again(1);
}

function amount(what: keyof Use, n: number): string {
  return what === "usd" ? dollars(n) : `${n} ${what}`;
}

function dollars(nano: number): string {
  const [whole = "0", fraction = ""] = (nano / 1e9).toFixed(9).split(".");
  const short = fraction.replace(/0+$/, "");
  return `$${whole}${short === "" ? "" : `.${short}`}`;
}
