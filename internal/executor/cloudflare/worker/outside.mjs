// A server that stands in for the Internet.

import { fetch } from "miniflare";

// outsideAt returns Worker options that send outgoing requests to the server at an address, with the original origin in
// a header. Without an address, requests go to the Internet.
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
