// Package proxy handles the gateway's traffic: an HTTP proxy with one listener per sandbox. It forwards what
// the policy allows, if the content matches the request.
//
//	CONNECT host:port   checked, resolved, checked again, connected; then, by the first byte, either
//	                    TLS whose hello names the same host, moved on unread from there,
//	                    or plain HTTP (never on 443), request by request as below
//	GET http://host/…   one request, rewritten by the standard library, so that what the other
//	                    side parses is what was checked
//
//	POST /llm/<route>/… an LLM call, which package llm serves
//
// Everything else is refused. An open connection is a flow. When the policy changes, flows that it allows
// continue and the others are cut.
package proxy
