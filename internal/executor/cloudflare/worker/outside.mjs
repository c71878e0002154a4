// A server that stands in for the Internet.

import { fetch } from "miniflare";

// outsideAt returns the options of a Worker whose requests go to the server at an address, with their original origin in
// a header. Without an address they go to the Internet.
export function outsideAt(address) {
  if (!address) return {};
  const outboundService = (request) => {
    const { origin, pathname, search } = new URL(request.url);
    const headers = new Headers(request.headers);
    for (const name of ["connection", "host", "transfer-encoding", "content-length"]) headers.delete(name);
    headers.set("X-Outside-Origin", origin);
    const { method, body } = request;
    const options = { method, headers: [...headers], body, duplex: "half", redirect: "manual" };
    return fetch(`http://${address}${pathname}${search}`, options);
  };
  return { outboundService };
}
