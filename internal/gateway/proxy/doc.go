// Package proxy is the gateway's traffic: an HTTP proxy on one listener per sandbox, which passes on
// what the policy allows and what is what it says it is.
//
//	CONNECT host:port   checked, resolved, checked again, connected; then, by the first byte, either
//	                    TLS whose hello names the same host, moved on unread from there,
//	                    or plain HTTP (never on 443), request by request as below
//	GET http://host/…   one request, written anew by the standard library, so that what the other
//	                    side parses is what was checked
//
// Anything else is refused. A connection that has got out is a flow: when the policy changes, flows
// that it allows go on and the others are cut.
package proxy
