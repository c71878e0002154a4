// Decides what a sandbox may reach. It is internal/gateway/policy in TypeScript, and a test runs testdata/hosts.json on
// both.

// Egress has the rules of an environment's restricted network (sandbox.Egress). The rules are valid.
export interface Egress {
  allow: { host: string; ports?: number[] }[];
}

// Refusal says why an attempt is refused. reason is for programs, detail for people.
export interface Refusal {
  reason: string;
  detail: string;
}

const defaultPorts = [443, 80];

// checkHost checks the host of a request, as the request names it, and the port. The most specific rule for the name
// decides: an exact one before a wildcard, a longer wildcard before a shorter one. Null means that the attempt is
// allowed. Without rules, everything is refused.
export function checkHost(egress: Egress | null, host: string, port: number): Refusal | null {
  const name = canonicalHost(host);
  if (name === null) return refuse("invalid_host", `${JSON.stringify(host)} must be a host name, not an address`);
  if (egress === null) return refuse("no_policy", "the environment has no rules yet, so nothing is allowed");
  const ports = portsOf(egress, name);
  if (ports === null) {
    return refuse("host_not_allowed", `${name} is not allowed: add a rule for it to the environment's egress`);
  }
  if (ports.includes(port)) return null;
  return refuse("port_not_allowed", `port ${port} of ${name} is not allowed: its rule allows ${ports.join(", ")}`);
}

function refuse(reason: string, detail: string): Refusal {
  return { reason, detail };
}

// canonicalHost returns a name in lower case and without the final dot, or null if host is not a host name.
export function canonicalHost(host: string): string | null {
  const name = host.replace(/\.$/, "").toLowerCase();
  if (name === "" || name.length > 253) return null;
  const labels = name.split(".");
  const valid = labels.every((l) => /^[a-z0-9_-]{1,63}$/.test(l) && !l.startsWith("-") && !l.endsWith("-"));
  // By the URL standard, a name whose last label is a number is an IPv4 address, in one of its many forms.
  return valid && !/^([0-9]+|0x[0-9a-f]*)$/.test(labels[labels.length - 1] ?? "") ? name : null;
}

function portsOf({ allow }: Egress, name: string): number[] | null {
  const suffixes = new Map(allow.map((r) => [r.host.toLowerCase(), r.ports?.length ? r.ports : defaultPorts]));
  const exact = suffixes.get(name);
  if (exact !== undefined) return exact;
  for (let dot = name.indexOf("."); dot >= 0; dot = name.indexOf(".", dot + 1)) {
    const ports = suffixes.get(`*${name.slice(dot)}`);
    if (ports !== undefined && dot > 0) return ports;
  }
  return null;
}
