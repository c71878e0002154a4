// Package proxy handles the gateway's traffic: an HTTP proxy with one listener per sandbox. It forwards what
// the policy allows, if the content matches the request.
//
//	CONNECT host:port   checked, resolved, checked again, connected; then, by the first byte, either
//	                    TLS whose hello names the same host, forwarded unread from there,
//	                    or plain HTTP (never on 443), each request as below
//	GET http://host/…   one request, which the standard library rewrites, so that the other
//	                    side parses exactly what was checked
//
//	POST /llm/<route>/… an LLM call, which package llm serves
//
// The proxy refuses everything else. An open connection is a flow. When the policy changes, the flows that it
// allows continue; the others are cut.
package proxy
