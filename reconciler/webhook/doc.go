// Package webhook receives and sends lifecycle conditions as Standard Webhooks
// (https://github.com/standard-webhooks/standard-webhooks, specification of 2026-08): it signs and
// verifies messages, and decodes their bodies strictly. Files of signing secrets and of tokens are in package access.
//
// A message is authentic when one of its "v1" signatures is the HMAC-SHA256 of
// "<webhook-id>.<webhook-timestamp>.<body>" under a secret that is active, and its timestamp is at
// most [Tolerance] away from the receiver's clock. Several secrets may be active at once, for rotation: add the new
// secret, switch the sender, and let the old one expire by not_after.
package webhook
