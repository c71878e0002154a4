// Package webhook receives and sends lifecycle conditions as Standard Webhooks
// (https://github.com/standard-webhooks/standard-webhooks, specification of 2026-08): it holds the
// credentials of the reconciler (signing secrets and bearer tokens, each in a file that only its
// owner can read), signs and verifies messages, and decodes their bodies strictly.
//
// A message is authentic when one of its "v1" signatures is the HMAC-SHA256 of
// "<webhook-id>.<webhook-timestamp>.<body>" under a secret that is active, and its timestamp is at
// most [Tolerance] away from the receiver's clock. Several secrets may be active at once, so that a
// sender can change over: add the new one, switch the sender, let the old one end by not_after.
package webhook
